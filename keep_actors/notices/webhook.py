"""A sink that is an HTTP endpoint: one signed POST for each attempt. Its address and its secret are never shown."""

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from keep_actors.api.notice import Notice
from keep_actors.notices.signature import NOTICE_ID, SIGNATURE, TIMESTAMP, Secrets, checked_secrets, signed
from keep_actors.notices.sink import PATIENCE, TIMEOUT_MS, GiveUp, checked_name, checked_timeout
from keep_actors.policy import Backoff
from keep_storage.ids import Millis, Now, wall_clock

if TYPE_CHECKING:
    import httpx

    from keep_actors.outbound.post import Sender

_REPLY_BYTES_MAX: Final = 64 * 1024
_GONE: Final = 410


class NotTaken(Exception):
    """The endpoint answered, but not with a 2xx."""


class Webhook:
    """Post notices as JSON, signed as *Standard Webhooks* has it. Needs httpx: `pip install 'keep-actors[notices]'`.

    `secret` is one (`whsec_…`, as `new_secret` makes it), or several while one is replaced: it signs with each of them.
    A 2xx is delivered, 410 gives up, any other answer is tried again. A redirect is not followed. The name is that of
    the host unless it is said. A `client` is used as it is and not closed.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: Secrets,
        name: str = "",
        timeout_ms: Millis = TIMEOUT_MS,
        backoff: Backoff = PATIENCE,
        clock: Now = wall_clock,
        client: "httpx.AsyncClient | None" = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("url is the address of an endpoint, such as https://example.com/keep")
        self._url = url
        self._host = parts.hostname
        self._secrets = checked_secrets(secret)
        self._clock = clock
        self._sender = _sender(client)
        # Not the whole address, which often has a token in it: the name is in the file, in logs and in metrics.
        self.name = checked_name(name or self._host, "Webhook(url, name='pager')")
        self.timeout_ms = checked_timeout(timeout_ms)
        self.backoff = backoff

    def __repr__(self) -> str:
        return f"Webhook({self.name!r})"

    async def deliver(self, notice: Notice) -> None:
        """Post it once. Raises `GiveUp`, `NotTaken` or an error of httpx."""
        body, timestamp_s = msgspec.json.encode(notice), self._clock() // 1000
        headers = {
            NOTICE_ID: notice.id,
            TIMESTAMP: str(timestamp_s),
            SIGNATURE: " ".join(signed(each, notice.id, timestamp_s, body) for each in self._secrets),
        }
        reply = await self._sender.post(self._url, headers, body, _REPLY_BYTES_MAX)
        if reply.status == _GONE:
            raise GiveUp(f"{self._host} answered 410: the endpoint is gone")
        if not 200 <= reply.status < 300:
            redirect = "; a redirect is not followed, give the final address" if 300 <= reply.status < 400 else ""
            raise NotTaken(f"{self._host} answered {reply.status}{redirect}")


def _sender(client: "httpx.AsyncClient | None") -> "Sender":
    try:
        from keep_actors.outbound.post import Sender
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        raise ModuleNotFoundError("Webhook needs httpx: pip install 'keep-actors[notices]'", name="httpx") from None
    return Sender(client)
