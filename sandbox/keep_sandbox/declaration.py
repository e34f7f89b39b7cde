"""What a script declares, and what is wrong with it, as values.

Problems are advice: what is refused at run time is refused whether it was found here or not.
"""

import enum
import re
from typing import Final

import msgspec

from keep_sandbox.outcomes import Place

PROBLEMS_SHOWN_MAX: Final = 50


class Code(enum.StrEnum):
    """What kind of problem it is. The names are part of the interface."""

    LOAD_ERROR = "load-error"
    TOO_LARGE = "too-large"
    NAME_MISSING = "name-missing"
    NAME_DIFFERS = "name-differs"
    HANDLERS_MISSING = "handlers-missing"
    HANDLER_MISSING = "handler-missing"
    HANDLER_NAME = "handler-name"
    PREPARE_MISSING = "prepare-missing"
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
    METHOD_UNKNOWN = "method-unknown"
    TOP_LEVEL_STATE = "top-level-state"
    DYNAMIC_CODE = "dynamic-code"
    GLOBAL_UNKNOWN = "global-unknown"


class Problem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that is wrong, where, and what would mend it."""

    code: Code
    message: str
    hint: str
    place: Place | None = None
    handler: str | None = None
    """The address of the handler it is in, if it is in one."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a producer or a job runs: one of the two."""

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
    """Where in a payload the key is, as in `customer.id`."""
    prepare: bool
    mutate: bool
    next: bool


class Declaration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `Keep.workflow` was given, without the code."""

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
    """None when the script could not be loaded."""
    problems: list[Problem]
    """The first of them, in the order of the script."""
    problem_count: int
    uses: list[Use] = []
    """The connector methods that its handlers name, sorted. What is called by a computed name is not among them."""


class _RawScheduled(msgspec.Struct):
    handler: bool
    publishes: list[str] | None
    schedule: object


class _RawConsumer(msgspec.Struct):
    subscribe: list[str] | None
    publishes: list[str] | None
    orderingKey: object  # noqa: N815  # as scripts spell it
    prepare: bool
    mutate: bool
    next: bool


class RawDeclaration(msgspec.Struct):
    """What the prelude read from the object: right in shape, not yet checked."""

    name: str | None
    topics: list[str] | None
    producers: dict[str, _RawScheduled]
    consumers: dict[str, _RawConsumer]
    jobs: dict[str, _RawScheduled]


_INTERVAL: Final = re.compile(r"[1-9][0-9]{0,6}(ms|s|m|h|d)")
_ORDERING_KEY: Final = re.compile(r"[^.\s]{1,64}(\.[^.\s]{1,64}){0,7}")
_CRON_FIELD: Final = re.compile(r"[0-9A-Za-z*,/\-?#LW]{1,64}")


def declared(raw: RawDeclaration) -> tuple[Declaration, list[Problem]]:
    """The declaration, and what is wrong with it by itself."""
    problems: list[Problem] = []
    topics = raw.topics or []
    if not raw.name:
        hint = 'add `name: "..."` to Keep.workflow'
        problems.append(Problem(code=Code.NAME_MISSING, message="the workflow has no name", hint=hint))
    if not (raw.producers or raw.consumers or raw.jobs):
        hint = "add at least one of `producers`, `consumers`, `jobs`"
        problems.append(Problem(code=Code.HANDLERS_MISSING, message="the workflow has no handlers", hint=hint))
    declaration = Declaration(
        name=raw.name,
        topics=topics,
        producers={
            name: _scheduled(f"producers.{name}", each, topics, problems) for name, each in raw.producers.items()
        },
        consumers={name: _consumer(name, each, topics, problems) for name, each in raw.consumers.items()},
        jobs={name: _scheduled(f"jobs.{name}", each, topics, problems) for name, each in raw.jobs.items()},
    )
    _check_shared_topics(declaration, problems)
    return declaration, problems


def _scheduled(handler: str, raw: _RawScheduled, topics: list[str], problems: list[Problem]) -> Scheduled:
    if not raw.handler:
        message = f"{handler} is neither a function nor has a `handler`"
        hint = "write `async name(ctx, state) {...}`, or `{schedule, publishes, handler}`"
        problems.append(Problem(code=Code.HANDLER_MISSING, message=message, hint=hint, handler=handler))
    _check_topics(handler, "publishes", raw.publishes or [], topics, problems)
    schedule = _schedule(raw.schedule)
    if raw.schedule is not None and schedule is None:
        hint = 'write `{interval: "5m"}` (s, m, h, d) or `{cron: "0 9 * * 1-5"}`'
        message = f"the schedule of {handler} cannot be read"
        problems.append(Problem(code=Code.SCHEDULE_INVALID, message=message, hint=hint, handler=handler))
    return Scheduled(schedule=schedule, publishes=raw.publishes)


def _schedule(raw: object) -> Schedule | None:
    match raw:
        case {"interval": str(interval), **rest} if not rest and _INTERVAL.fullmatch(interval):
            return Schedule(interval=interval)
        case {"cron": str(cron), **rest} if not rest:
            fields = cron.split()
            if len(fields) == 5 and all(_CRON_FIELD.fullmatch(field) for field in fields):
                return Schedule(cron=" ".join(fields))
    return None


def _consumer(name: str, raw: _RawConsumer, topics: list[str], problems: list[Problem]) -> Consumer:
    handler = f"consumers.{name}"
    if not raw.prepare:
        hint = "add `async prepare(ctx, state) {...}`"
        message = f"{handler} has no `prepare`"
        problems.append(Problem(code=Code.PREPARE_MISSING, message=message, hint=hint, handler=handler))
    if not raw.subscribe:
        hint = 'add `subscribe: ["topic"]`'
        message = f"{handler} subscribes to nothing, so it never runs"
        problems.append(Problem(code=Code.SUBSCRIBE_MISSING, message=message, hint=hint, handler=handler))
    _check_topics(handler, "subscribe", raw.subscribe or [], topics, problems)
    _check_topics(handler, "publishes", raw.publishes or [], topics, problems)
    key = raw.orderingKey
    if key is not None and not (isinstance(key, str) and _ORDERING_KEY.fullmatch(key)):
        message = f"the `orderingKey` of {handler} is not the name of a member of the payload"
        hint = 'write where the key is, as in `orderingKey: "customer.id"`'
        problems.append(Problem(code=Code.ORDERING_KEY_INVALID, message=message, hint=hint, handler=handler))
        key = None
    return Consumer(
        subscribe=raw.subscribe or [],
        publishes=raw.publishes,
        ordering_key=key if isinstance(key, str) else None,
        prepare=raw.prepare,
        mutate=raw.mutate,
        next=raw.next,
    )


def _check_topics(handler: str, where: str, named: list[str], topics: list[str], problems: list[Problem]) -> None:
    for topic in named:
        if topic not in topics:
            message = f"`{where}` of {handler} names the topic {topic!r}, which is not declared"
            hint = f"add it to `topics`, or use one of {_shown(topics)}"
            problems.append(Problem(code=Code.TOPIC_UNKNOWN, message=message, hint=hint, handler=handler))


def _check_shared_topics(declaration: Declaration, problems: list[Problem]) -> None:
    owners: dict[str, str] = {}
    for name, consumer in declaration.consumers.items():
        for topic in dict.fromkeys(consumer.subscribe):
            if topic in owners:
                message = f"the consumers {owners[topic]!r} and {name!r} both subscribe to {topic!r}"
                hint = "a topic has one consumer: publish to a second topic for the second one"
                handler = f"consumers.{name}"
                problems.append(Problem(code=Code.TOPIC_SHARED, message=message, hint=hint, handler=handler))
            else:
                owners[topic] = name


def _shown(topics: list[str]) -> str:
    return ", ".join(repr(topic) for topic in topics[:10]) or "none"
