"""A script's declaration and its problems, as values.

A deployment is refused for problems; warnings are only shown. The runtime enforces every rule again at run time.
"""

import enum
from collections.abc import Sequence, Sized
from difflib import get_close_matches
from typing import Final, TypeAlias

import msgspec

from keep_sandbox.outcomes import Place

PROBLEMS_SHOWN_MAX: Final = 50


class Code(enum.StrEnum):
    """The kind of a problem. The names are part of the interface."""

    LOAD_ERROR = "load-error"
    TOO_LARGE = "too-large"
    NAME_MISSING = "name-missing"
    NAME_INVALID = "name-invalid"
    TOO_MANY = "too-many"
    NAME_DIFFERS = "name-differs"
    NAME_TAKEN = "name-taken"
    HANDLERS_MISSING = "handlers-missing"
    HANDLER_MISSING = "handler-missing"
    HANDLER_NAME = "handler-name"
    FIELD_UNKNOWN = "field-unknown"
    PREPARE_MISSING = "prepare-missing"
    NEXT_MISSING = "next-missing"
    SUBSCRIBE_MISSING = "subscribe-missing"
    ORDERING_KEY_INVALID = "ordering-key-invalid"
    SCHEDULE_INVALID = "schedule-invalid"
    TOPIC_UNKNOWN = "topic-unknown"
    TOPIC_SHARED = "topic-shared"
    TOPIC_NOT_SUBSCRIBED = "topic-not-subscribed"
    TOPIC_NOT_PUBLISHED = "topic-not-in-publishes"
    CODE_AFTER_MUTATION = "code-after-mutation"
    MUTATION_MISPLACED = "mutation-misplaced"
    CALL_MISPLACED = "call-misplaced"
    EVENT_INVALID = "event-invalid"
    RESULT_INVALID = "result-invalid"
    ITEM_NOT_AWAITED = "item-not-awaited"
    METHOD_UNKNOWN = "method-unknown"
    TOP_LEVEL_STATE = "top-level-state"
    DYNAMIC_CODE = "dynamic-code"
    GLOBAL_UNKNOWN = "global-unknown"


class Problem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One problem in a script: its place, and a hint how to solve it."""

    code: Code
    message: str
    hint: str
    place: Place | None = None
    handler: str | None = None
    """The address of the handler that it is in, if any."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The schedule of a producer or a job: either an interval or cron."""

    interval: str | None = None
    cron: str | None = None


class Scheduled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A producer or a job."""

    schedule: Schedule | None = None
    publishes: list[str] | None = None
    """None: every topic."""


class Consumer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A consumer, with the phases it has."""

    subscribe: list[str]
    publishes: list[str] | None = None
    ordering_key: str | None = None
    """The path of the key in a payload, as in `customer.id`."""
    prepare: bool
    mutate: bool
    next: bool


class Declaration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The argument of `Keep.workflow`, without the code."""

    name: str | None
    topics: list[str]
    producers: dict[str, Scheduled]
    consumers: dict[str, Consumer]
    jobs: dict[str, Scheduled]


class Use(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A connector method that a handler names."""

    name: str
    """`gmail.search`."""
    place: Place
    handler: str


class Inspection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer of `inspect`."""

    declaration: Declaration | None
    """None if the script could not be loaded."""
    problems: list[Problem]
    """The first `PROBLEMS_SHOWN_MAX`, in the order of the script."""
    problem_count: int
    """The number of all problems."""
    warnings: list[Problem] = []
    """Code that is probably wrong, but may be right; no reason to refuse the script. The first ones, as above."""
    uses: list[Use] = []
    """The connector methods that its handlers name, sorted. Calls by a computed name are not included."""
    places: dict[str, Place] = {}
    """The place of each handler (`producers.poll`) and of its schedule (`producers.poll.schedule`)."""


Path: TypeAlias = tuple[str, ...]
"""A place in the declaration: `("consumers", "file", "subscribe", "order.new")`."""


def near(word: str, known: Sequence[str], found: Sized = ()) -> str:
    """The beginning of a hint, if the word looks like a known one. Empty once enough problems were found to show."""
    if len(found) >= PROBLEMS_SHOWN_MAX:
        return ""
    close = get_close_matches(word[:80], [each[:80] for each in known[:100]], n=1, cutoff=0.7)
    return f"did you mean `{close[0]}`? " if close else ""
