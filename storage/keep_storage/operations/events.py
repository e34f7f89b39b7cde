"""Changes of events and of items."""

import msgspec

from keep_storage.model import Event, Item, ItemState, Json
from keep_storage.operations.operation import Operation


class Publish(msgspec.Struct, frozen=True):
    """An event to append to a topic, or to update while it is still pending."""

    id: str
    topic: str
    message_id: str
    title: str
    payload: Json = "null"


class PublishEvents(Operation[tuple[Event, ...]], frozen=True):
    """Append events from outside any handler: a webhook of the embedding service, a test."""

    workflow_id: str
    publishes: tuple[Publish, ...]


class SkipEvent(Operation[Event], frozen=True):
    """A person skips a pending event."""

    workflow_id: str
    topic: str
    message_id: str
    by: str = ""
    why: str = ""


class OpenItem(Operation[Item], frozen=True):
    """A job enters `withItem`. The answer's state says whether the item is already done."""

    run_id: str
    item_id: str
    title: str


class CloseItem(Operation[Item], frozen=True):
    """A job leaves `withItem`: what it published inside is there with it, whatever becomes of the run."""

    run_id: str
    item_id: str
    state: ItemState
    error: str = ""
    publishes: tuple[Publish, ...] = ()


class SkipItem(Operation[Item], frozen=True):
    """A person skips an item: like `done`, it may not mutate any more."""

    workflow_id: str
    item_id: str
    by: str = ""
    why: str = ""
    state: ItemState | None = None
    """The state that the person saw: refused if it has changed since."""


class ReprocessItem(Operation[Item], frozen=True):
    """A person asks for the item to be processed again: the next attempt shares nothing with this one."""

    workflow_id: str
    item_id: str
    by: str = ""
    why: str = ""
    state: ItemState | None = None
    """The state that the person saw: refused if it has changed since."""
