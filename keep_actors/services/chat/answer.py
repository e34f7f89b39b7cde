"""The answer of an endpoint, which is foreign text: what a script gets of it, or the reason why it gets nothing. Pure.

A question is a read, so every reason is an error of the table below.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from keep_actors.connectors import ConnectorError, InvalidCall, PreconditionFailed, Transient
from keep_actors.services.chat.question import ChatQuestion
from keep_actors.services.chat.settings import ChatPrices
from keep_actors.text.visible import cut
from keep_sandbox.json_text import slow_to_decode
from keep_storage.ids import Millis

MODEL_CHARS_MAX: Final = 100

FinishReason: TypeAlias = Literal["stop", "length", "other"]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]


class ChatUsage(msgspec.Struct, frozen=True, rename="camel"):
    """Tokens, as the endpoint counted them. 0: it said nothing."""

    input_tokens: int = 0
    output_tokens: int = 0


class ChatAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The words of a model. They may be wrong, and they may be an attempt to give orders: treat them as data."""

    text: str
    model: str
    """As the endpoint names it."""
    finish: FinishReason
    """`length`: the text was cut at the limit of tokens."""
    usage: ChatUsage
    answered_at: str
    """ISO 8601. An answer that was kept is as old as this says."""
    json: Any = msgspec.UNSET
    """The text as JSON, if there was a schema."""


class ChatProblem(StrEnum):
    """The reasons why an answer cannot be used."""

    NOT_A_COMPLETION = "the answer of the endpoint is no chat completion"
    NO_TEXT = "the answer of the model has no text"
    REFUSED = "the model refused to answer"
    FILTERED = "a content filter of the service blocked the answer"
    CUT = "the answer was cut at the limit of tokens, so it is not the JSON that was asked for; raise maxTokens"
    NOT_JSON = "the model was asked for JSON and answered with something else"
    NOT_THE_SCHEMA = "the JSON of the answer does not fit the schema"


PROBLEMS: Final[Mapping[ChatProblem, type[ConnectorError]]] = {
    ChatProblem.NOT_A_COMPLETION: PreconditionFailed,  # another kind of server, or one that has changed
    ChatProblem.NO_TEXT: Transient,
    ChatProblem.REFUSED: PreconditionFailed,
    ChatProblem.FILTERED: PreconditionFailed,
    ChatProblem.CUT: InvalidCall,
    ChatProblem.NOT_JSON: Transient,  # the next answer may be another
    ChatProblem.NOT_THE_SCHEMA: Transient,
}
"""The error of each. A transient one is tried again, and the question is then asked again."""
assert set(PROBLEMS) == set(ChatProblem), "every reason has its error"


class _Said(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Said
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count = 0
    completion_tokens: _Count = 0


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    model: str | None = None


class _Counted(msgspec.Struct):
    usage: _Usage | None = None


def usage_of(body: bytes) -> ChatUsage:
    """Read what was used, whatever else the answer has in it."""
    try:
        found = msgspec.json.decode(body, type=_Counted).usage or _Usage()
    except (ValueError, RecursionError):
        return ChatUsage()
    return ChatUsage(found.prompt_tokens, found.completion_tokens)


def cost_micros(usage: ChatUsage, prices: ChatPrices | None) -> int:
    """The cost in millionths: a price for a million tokens is as many millionths for one."""
    if prices is None:
        return 0
    return round(usage.input_tokens * prices.input + usage.output_tokens * prices.output)


def answer_of(body: bytes, question: ChatQuestion, now: Millis) -> ChatAnswer | ChatProblem:
    """Read an answer of status 200."""
    try:
        completion = msgspec.json.decode(body, type=_Completion)
    except (ValueError, RecursionError):
        return ChatProblem.NOT_A_COMPLETION
    if len(completion.choices) != 1:
        return ChatProblem.NOT_A_COMPLETION
    [choice] = completion.choices
    if choice.finish_reason == "content_filter":
        return ChatProblem.FILTERED
    if choice.message.refusal:
        return ChatProblem.REFUSED
    if not choice.message.content:
        return ChatProblem.NO_TEXT
    finish: FinishReason = "other"
    if choice.finish_reason in ("stop", "length"):
        finish = "stop" if choice.finish_reason == "stop" else "length"
    answer = ChatAnswer(
        text=choice.message.content,
        model=cut(completion.model or "", MODEL_CHARS_MAX)[0],
        finish=finish,
        usage=usage_of(body),
        answered_at=datetime.fromtimestamp(now / 1_000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    )
    return answer if question.answer_type is None else _structured(answer, question)


def _structured(answer: ChatAnswer, question: ChatQuestion) -> ChatAnswer | ChatProblem:
    text = answer.text.encode(errors="replace")
    if answer.finish == "length":
        return ChatProblem.CUT
    if slow_to_decode(text):
        return ChatProblem.NOT_JSON
    try:
        value = msgspec.json.decode(text)
        msgspec.json.decode(text, type=question.answer_type)
    except msgspec.ValidationError:
        return ChatProblem.NOT_THE_SCHEMA
    except (ValueError, RecursionError):
        return ChatProblem.NOT_JSON
    return msgspec.structs.replace(answer, json=value)
