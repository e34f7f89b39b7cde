"""A question to a model: what a script passes, what the endpoint gets, and the key of its answer. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from keep_actors.connectors import InvalidCall
from keep_actors.services.chat.settings import ChatSettings
from keep_actors.services.json_schema import SchemaTypes, SchemaUnusable

MESSAGES_MAX: Final = 200
SCHEMA_BYTES_MAX: Final = 20_000
VARIANT_CHARS_MAX: Final = 100

Tokens = Annotated[int, msgspec.Meta(ge=1)]
Temperature = Annotated[float, msgspec.Meta(ge=0, le=2)]
Variant = Annotated[str, msgspec.Meta(max_length=VARIANT_CHARS_MAX)]


class ConversationMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class ChatQuestion(msgspec.Struct, frozen=True):
    """A question, ready to be sent."""

    body: bytes
    key: str
    """Equal for equal questions of one workflow."""
    answer_type: Any
    """The type that a structured answer must have. None: the answer is text."""


def question_of(settings: ChatSettings, workflow_id: str, given: Mapping[str, Any]) -> ChatQuestion:
    """Make a question of the parameters of a call, by their Python names. Raises `InvalidCall`."""
    asked: dict[str, Any] = {
        "model": settings.model,
        "messages": _messages(given),
        "stream": False,
        settings.limit_name: _tokens(settings, given["max_tokens"]),
    }
    temperature = settings.temperature if given["temperature"] is msgspec.UNSET else given["temperature"]
    if temperature is not None:
        asked["temperature"] = temperature
    answer_type = None
    if given["schema"] is not msgspec.UNSET:
        answer_type = _answer_type(given["schema"])
        form = {"name": "answer", "strict": True, "schema": given["schema"]}
        asked["response_format"] = {"type": "json_schema", "json_schema": form}
    body = msgspec.json.encode(asked)
    if len(body) > settings.question_bytes_max:
        raise InvalidCall(f"the question has {len(body):,} bytes; {settings.question_bytes_max:,} are the most")
    key = [workflow_id, settings.base_url, given["variant"], asked]
    return ChatQuestion(body, hashlib.sha256(msgspec.json.encode(key, order="sorted")).hexdigest(), answer_type)


def _messages(given: Mapping[str, Any]) -> list[dict[str, str]]:
    prompt, messages, system = given["prompt"], given["messages"], given["system"]
    if (prompt is msgspec.UNSET) == (messages is msgspec.UNSET):
        raise InvalidCall("pass either `prompt` or `messages`")
    found: Sequence[ConversationMessage] = (
        [ConversationMessage("user", prompt)] if messages is msgspec.UNSET else messages
    )
    if not found or len(found) > MESSAGES_MAX:
        raise InvalidCall(f"`messages` has {len(found):,} messages; there are 1 to {MESSAGES_MAX}")
    first = [] if system is msgspec.UNSET else [ConversationMessage("system", system)]
    return [{"role": each.role, "content": each.content} for each in (*first, *found)]


def _tokens(settings: ChatSettings, asked: Any) -> int:
    if asked is msgspec.UNSET:
        return settings.tokens_max
    if asked > settings.tokens_max:
        raise InvalidCall(f"`maxTokens` is {asked:,}; {settings.tokens_max:,} are the most here")
    return int(asked)


def _answer_type(schema: Mapping[str, Any]) -> Any:
    if len(msgspec.json.encode(schema)) > SCHEMA_BYTES_MAX:
        raise InvalidCall(f"`schema` has more than {SCHEMA_BYTES_MAX:,} bytes")
    try:
        return SchemaTypes("answer", is_given=False).type(schema, "schema")
    except SchemaUnusable as error:
        raise InvalidCall(str(error)) from None
