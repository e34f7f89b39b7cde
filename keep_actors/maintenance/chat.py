"""A maintainer that asks a language model, over the OpenAI-compatible chat completions API.

The server and its answer are untrusted: the result is always a `Proposal` or a `RepairFailed`, and never contains the
API key.
"""

from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from keep_actors.kernel.foreign_code import Raised, Returned, TimedOut, carry_out, described
from keep_actors.maintenance.answer import proposal_of
from keep_actors.maintenance.evidence import legible
from keep_actors.maintenance.prompt import messages_for
from keep_actors.maintenance.task import Proposal, RepairFailed, RepairTask
from keep_actors.outbound.secret import SHOWN, Secret

if TYPE_CHECKING:
    import httpx

    from keep_actors.outbound.post import HttpReply, Sender

ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Room for the largest script, with every character escaped, and the text around it."""
_DETAIL_CHARS_MAX: Final = 300
_KEY_CHARS_MIN: Final = 16
"""A shorter key is a placeholder for a local server, such as `none` or `ollama`, and not a secret."""


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class _Problem(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Problem | str


class ChatMaintainer:
    """Asks `model` at `url` (`https://api.example.com/v1`). Needs httpx: `pip install 'keep-actors[maintenance]'`.

    Sends the script and the evidence of its failure to that server. `max_tokens` and `temperature` are not sent if
    None, for models that refuse them. A given `client` is used as it is and not closed.
    """

    is_automatic: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: Secret | None,
        timeout_ms: int = 60_000,
        max_tokens: int | None = 16_384,
        temperature: float | None = 0,
        client: "httpx.AsyncClient | None" = None,
    ) -> None:
        if timeout_ms <= 0:
            raise ValueError("timeout_ms must be > 0; it is for the whole answer")
        self._url = _checked_url(url)
        self._key = _checked_key(api_key)
        self._model = model
        self._timeout_ms = timeout_ms
        self._settings = {"max_tokens": max_tokens, "temperature": temperature}
        self._sender = _sender(client)

    def __repr__(self) -> str:
        return f"ChatMaintainer({self._url!r}, {self._model!r})"

    async def repair(self, task: RepairTask) -> Proposal:
        """Ask once. Raises `RepairFailed`."""
        settings = {name: value for name, value in self._settings.items() if value is not None}
        asked = {"model": self._model, "messages": messages_for(task), "stream": False, **settings}
        body = msgspec.json.encode(asked)
        # An error of httpx holds the request with the key: it is not even the cause of the error raised here.
        match await carry_out(lambda: self._post(body), self._timeout_ms):
            case Returned(value=reply):
                return self._proposal(reply)
            case TimedOut():
                raise RepairFailed(f"{self._url} gave no answer within {self._timeout_ms} ms.", is_transient=True)
            case Raised(error=error):
                why = self._redacted(described(error))
                raise RepairFailed(f"The request to {self._url} failed: {why}", is_transient=True)

    async def _post(self, body: bytes) -> "HttpReply":
        headers = {"authorization": f"Bearer {self._key.reveal()}"} if self._key is not None else {}
        return await self._sender.post(f"{self._url}/chat/completions", headers, body, ANSWER_BYTES_MAX)

    def _proposal(self, reply: "HttpReply") -> Proposal:
        if reply.status != 200:
            raise self._refused(reply)
        if not reply.is_whole:
            raise RepairFailed(f"{self._url} answered with more than {ANSWER_BYTES_MAX} bytes.")
        if reply.is_encoded:
            raise RepairFailed(f"{self._url} answered in a compressed form that was not asked for.")
        answer = self._answer(reply.body)
        if self._key is not None and len(key := self._key.reveal()) >= _KEY_CHARS_MIN and key in answer:
            raise RepairFailed("The answer repeats the API key, so it is not kept.")
        return proposal_of(answer)

    def _answer(self, body: bytes) -> str:
        try:
            completion = msgspec.json.decode(body, type=_Completion)
        except msgspec.ValidationError as error:
            why = self._redacted(str(error))
            raise RepairFailed(f"The answer of {self._url} is not a chat completion: {why}") from None
        except (ValueError, RecursionError):
            raise RepairFailed(f"The answer of {self._url} is not JSON.") from None
        if len(completion.choices) != 1:
            raise RepairFailed(f"The answer of {self._url} has {len(completion.choices)} choices, not one.")
        [choice] = completion.choices
        if choice.finish_reason == "length":
            raise RepairFailed("The model's answer was cut off at the token limit; raise max_tokens.")
        if choice.finish_reason == "content_filter":
            raise RepairFailed("A content filter blocked the model's answer.")
        if not choice.message.content:
            raise RepairFailed("The model's answer has no text.")
        return choice.message.content

    def _refused(self, reply: "HttpReply") -> RepairFailed:
        status = reply.status
        if 300 <= status < 400:
            return RepairFailed(f"{self._url} redirects ({status}), which is not followed; give the final address.")
        if status in (401, 403):
            # The body is not shown: it may quote a part of the key.
            why = "refuses the API key" if self._key is not None else "requires an API key"
            return RepairFailed(f"{self._url} {why} ({status}).")
        if status == 429:
            wait = reply.retry_after
            then = f"; it asks to wait {wait} s" if wait.isascii() and wait.isdigit() and len(wait) < 9 else ""
            return RepairFailed(f"{self._url} limits the rate, or a quota is used up (429){then}.", is_transient=True)
        why = f": {detail}" if (detail := self._detail(reply)) else "."
        if status >= 500:
            return RepairFailed(f"{self._url} is out of order ({status}){why}", is_transient=True)
        return RepairFailed(f"{self._url} refused the request ({status}){why}")

    def _detail(self, reply: "HttpReply") -> str:
        """The message of an API error; empty if the body is not one."""
        if not reply.is_whole or reply.is_encoded:
            return ""
        try:
            said = msgspec.json.decode(reply.body, type=_Refusal).error
        except (ValueError, RecursionError):
            return ""
        return self._redacted(said if isinstance(said, str) else said.message)

    def _redacted(self, text: str) -> str:
        """Text from outside: without the key, on one line, and cut."""
        clean = text if self._key is None else text.replace(self._key.reveal(), SHOWN)
        return legible(" ".join(clean.split()), _DETAIL_CHARS_MAX)


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("url must be the address of the API, such as https://api.example.com/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        # It is written to logs and shown to people.
        raise ValueError("url must not have a user, password, query or fragment; pass a key as api_key")
    return url.rstrip("/")


def _checked_key(key: Secret | None) -> Secret | None:
    if key is None:
        return None
    if not isinstance(key, Secret):
        raise TypeError("api_key must be a Secret: write api_key=Secret(...)")
    text = key.reveal()
    if not text or not all("!" <= each <= "~" for each in text):
        # Checked here, because an error about an invalid header would quote the key. Often it is a newline from a file.
        raise ValueError("api_key is empty, or has an invalid character, such as a space or a newline")
    return key


def _sender(client: "httpx.AsyncClient | None") -> "Sender":
    try:
        from keep_actors.outbound.post import Sender
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        what = "ChatMaintainer needs httpx: pip install 'keep-actors[maintenance]'"
        raise ModuleNotFoundError(what, name="httpx") from None
    return Sender(client)
