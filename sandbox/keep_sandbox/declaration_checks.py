"""Check a declaration by itself: names, fields, counts, topics, schedules.

A worker sends its declaration, and a script may have taken the worker over: the host checks it again with `is_sound`.
"""

import re
from typing import Final, TypeAlias

import msgspec

from keep_sandbox.declaration import Code, Consumer, Declaration, Path, Problem, Schedule, Scheduled, near
from keep_sandbox.names import HANDLERS_MAX, NAME_CHARS_MAX, TOPICS_MAX, unfit_name

_INTERVAL: Final = re.compile(r"[1-9][0-9]{0,6}(ms|s|m|h|d)")
_ORDERING_KEY: Final = re.compile(r"[^.\s]{1,64}(\.[^.\s]{1,64}){0,7}")
_CRON_FIELD: Final = re.compile(r"[0-9A-Za-z*,/\-?#LW]{1,64}")

Misfit: TypeAlias = tuple[Path, Problem]
"""A problem and its place in the declaration."""

_FIELDS: Final = ("name", "topics", "producers", "consumers", "jobs")
_SCHEDULED_FIELDS: Final = ("schedule", "publishes", "handler")
_CONSUMER_FIELDS: Final = ("subscribe", "publishes", "orderingKey", "prepare", "mutate", "next")
_SCHEDULE_HINT: Final = 'write `{interval: "5m"}` (s, m, h, d) or `{cron: "0 9 * * 1-5"}`, five fields'


class _RawScheduled(msgspec.Struct):
    fields: list[str]
    handler: bool
    publishes: list[str] | None
    schedule: object


class _RawConsumer(msgspec.Struct):
    fields: list[str]
    subscribe: list[str] | None
    publishes: list[str] | None
    orderingKey: object  # noqa: N815  # as scripts spell it
    prepare: bool
    mutate: bool
    next: bool


class RawDeclaration(msgspec.Struct):
    """The declaration as `declare.js` read it: right in shape, not yet checked."""

    fields: list[str]
    name: str | None
    topics: list[str] | None
    producers: dict[str, _RawScheduled]
    consumers: dict[str, _RawConsumer]
    jobs: dict[str, _RawScheduled]
    topicCount: int  # noqa: N815  # as declare.js says it
    handlerCount: int  # noqa: N815
    """The number of all; only the first were read."""


def declared(raw: RawDeclaration) -> tuple[Declaration, list[Misfit]]:
    """The declaration and its problems, each with its place in it."""
    found: list[Misfit] = []
    topics = raw.topics or []
    if not raw.name:
        hint = 'add `name: "..."` to Keep.workflow'
        found.append(((), Problem(code=Code.NAME_MISSING, message="the workflow has no name", hint=hint)))
    if not (raw.producers or raw.consumers or raw.jobs):
        hint = "add at least one of `producers`, `consumers`, `jobs`"
        found.append(((), Problem(code=Code.HANDLERS_MISSING, message="the workflow has no handlers", hint=hint)))
    _check_fields((), raw.fields, _FIELDS, found)
    _check_counts(raw, found)
    declaration = Declaration(
        name=raw.name,
        topics=topics,
        producers={name: _scheduled("producers", name, each, topics, found) for name, each in raw.producers.items()},
        consumers={name: _consumer(name, each, topics, found) for name, each in raw.consumers.items()},
        jobs={name: _scheduled("jobs", name, each, topics, found) for name, each in raw.jobs.items()},
    )
    _check_shared_topics(declaration, found)
    _check_names(declaration, found)
    return declaration, found


def is_sound(declaration: Declaration) -> bool:
    """Return True if a declaration that a worker sent has no problems: it is checked again from the start.

    Cheap checks come first, because the full check compares every name with every other.
    """
    topics, reads = set(declaration.topics), [each.subscribe for each in declaration.consumers.values()]
    lists = [*reads, *(each.publishes or [] for each in _handlers(declaration))]
    if not is_readable(declaration) or not all(topics.issuperset(each) for each in lists):
        return False
    if sum(len(set(each)) for each in reads) > len(topics):
        return False
    _, found = declared(
        RawDeclaration(
            fields=[],
            name=declaration.name,
            topics=declaration.topics,
            producers={name: _raw_scheduled(each) for name, each in declaration.producers.items()},
            consumers={name: _raw_consumer(each) for name, each in declaration.consumers.items()},
            jobs={name: _raw_scheduled(each) for name, each in declaration.jobs.items()},
            topicCount=len(declaration.topics),
            handlerCount=len(declaration.producers) + len(declaration.consumers) + len(declaration.jobs),
        )
    )
    return not found


def is_readable(declaration: Declaration) -> bool:
    """Return True if a declaration is small enough to be checked, and all its schedules are valid.

    An honest worker leaves invalid schedules out, so that even a declaration with problems is readable.
    """
    handlers = _handlers(declaration)
    if len(declaration.topics) > TOPICS_MAX or len(handlers) > HANDLERS_MAX:
        return False
    lists = [each.publishes or [] for each in handlers]
    lists += [each.subscribe for each in declaration.consumers.values()]
    schedules = [each.schedule for each in handlers if isinstance(each, Scheduled) and each.schedule is not None]
    return max(map(len, lists), default=0) <= TOPICS_MAX and all(
        _schedule(msgspec.to_builtins(each)) == each for each in schedules
    )


def _handlers(declaration: Declaration) -> list[Scheduled | Consumer]:
    return [*declaration.producers.values(), *declaration.jobs.values(), *declaration.consumers.values()]


def _raw_scheduled(each: Scheduled) -> _RawScheduled:
    schedule = None if each.schedule is None else msgspec.to_builtins(each.schedule)
    return _RawScheduled(fields=[], handler=True, publishes=each.publishes, schedule=schedule)


def _raw_consumer(each: Consumer) -> _RawConsumer:
    phases = [phase for phase in ("prepare", "mutate", "next") if getattr(each, phase)]
    return _RawConsumer(
        fields=phases,
        subscribe=each.subscribe,
        publishes=each.publishes,
        orderingKey=each.ordering_key,
        prepare=each.prepare,
        mutate=each.mutate,
        next=each.next,
    )


def _check_counts(raw: RawDeclaration, found: list[Misfit]) -> None:
    lists = [each.publishes for group in (raw.producers, raw.consumers, raw.jobs) for each in group.values()]
    lists += [each.subscribe for each in raw.consumers.values()]
    longest = max((len(each) for each in lists if each is not None), default=0)
    for what, path, count, most in (
        ("handlers", (), raw.handlerCount, HANDLERS_MAX),
        ("topics", ("topics",), raw.topicCount, TOPICS_MAX),
        ("topics in one `subscribe` or `publishes`", (), longest, TOPICS_MAX),
    ):
        if count > most:
            message = f"the workflow has {count} {what}; at most {most} are allowed"
            hint = "split it into several workflows"
            found.append((path, Problem(code=Code.TOO_MANY, message=message, hint=hint)))


def _check_names(declaration: Declaration, found: list[Misfit]) -> None:
    """Check the names of the workflow, its topics and its handlers. A missing name is reported elsewhere."""
    named: list[tuple[Path, str, str]] = [(("name",), "the name of the workflow", declaration.name or "x")]
    named += [(("topics", topic), f"the topic {_brief(topic)}", topic) for topic in declaration.topics]
    for group in ("producers", "consumers", "jobs"):
        for name in getattr(declaration, group):
            named.append(((group, name), f"the name of the handler {group}.{_brief(name)}", name or "x"))
    hint = f"write 1 to {NAME_CHARS_MAX} visible characters, as in `order.paid` or `fileInvoice`"
    for path, what, name in named:
        if why := unfit_name(name):
            found.append((path, Problem(code=Code.NAME_INVALID, message=f"{what} {why}", hint=hint)))


def _brief(name: str) -> str:
    return ascii(name if len(name) <= 40 else f"{name[:40]}...")


def _scheduled(group: str, name: str, raw: _RawScheduled, topics: list[str], found: list[Misfit]) -> Scheduled:
    handler, path = f"{group}.{name}", (group, name)
    if not raw.handler:
        message = f"{handler} is neither a function nor an object with a `handler` function"
        hint = "write `async name(ctx, state) {...}`, or `{schedule, publishes, async handler(ctx, state) {...}}`"
        found.append((path, Problem(code=Code.HANDLER_MISSING, message=message, hint=hint, handler=handler)))
    _check_fields(path, raw.fields, _SCHEDULED_FIELDS, found)
    _check_topics(path, "publishes", raw.publishes or [], topics, found)
    schedule = _schedule(raw.schedule)
    if raw.schedule is not None and schedule is None:
        message = f"the schedule of {handler} is not valid"
        problem = Problem(code=Code.SCHEDULE_INVALID, message=message, hint=_SCHEDULE_HINT, handler=handler)
        found.append(((*path, "schedule"), problem))
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


def _consumer(name: str, raw: _RawConsumer, topics: list[str], found: list[Misfit]) -> Consumer:
    handler, path = f"consumers.{name}", ("consumers", name)
    for phase, is_function in (("prepare", raw.prepare), ("mutate", raw.mutate), ("next", raw.next)):
        if phase in raw.fields and not is_function:
            message, hint = f"{handler}.{phase} is not a function", f"write `async {phase}(ctx, ...) {{...}}`"
            problem = Problem(code=Code.HANDLER_MISSING, message=message, hint=hint, handler=handler)
            found.append(((*path, phase), problem))
    if not raw.prepare and "prepare" not in raw.fields:
        hint = "add `async prepare(ctx, state) {...}` that returns `{reservations: [{topic, ids}], data}`"
        message = f"{handler} has no `prepare`"
        found.append((path, Problem(code=Code.PREPARE_MISSING, message=message, hint=hint, handler=handler)))
    if raw.publishes and "next" not in raw.fields:
        hint = "add `async next(ctx, prepared, mutationResult) {...}` that publishes, or leave `publishes` out"
        message = f"{handler} has `publishes` and no `next`, so it publishes nothing"
        problem = Problem(code=Code.NEXT_MISSING, message=message, hint=hint, handler=handler)
        found.append(((*path, "publishes"), problem))
    if not raw.subscribe:
        hint = f"add `subscribe: [...]` with one of {_shown(topics)}"
        message = f"{handler} subscribes to nothing, so it never runs"
        found.append((path, Problem(code=Code.SUBSCRIBE_MISSING, message=message, hint=hint, handler=handler)))
    _check_fields(path, raw.fields, _CONSUMER_FIELDS, found)
    _check_topics(path, "subscribe", raw.subscribe or [], topics, found)
    _check_topics(path, "publishes", raw.publishes or [], topics, found)
    key = raw.orderingKey
    if key is not None and not (isinstance(key, str) and _ORDERING_KEY.fullmatch(key)):
        message = f"the `orderingKey` of {handler} is not a path in the payload"
        hint = 'write the path of the key, as in `orderingKey: "customer.id"`'
        problem = Problem(code=Code.ORDERING_KEY_INVALID, message=message, hint=hint, handler=handler)
        found.append(((*path, "orderingKey"), problem))
        key = None
    return Consumer(
        subscribe=raw.subscribe or [],
        publishes=raw.publishes,
        ordering_key=key if isinstance(key, str) else None,
        prepare=raw.prepare,
        mutate=raw.mutate,
        next=raw.next,
    )


def _check_fields(path: Path, given: list[str], known: tuple[str, ...], found: list[Misfit]) -> None:
    """Report unknown fields that look like a missing known one: a typing error would silently do nothing."""
    missing = [each for each in known if each not in given]
    for field in given:
        if field in known or not (hint := near(field, missing, found)):
            continue
        message = f"{'.'.join(path) or 'the workflow'} has no field `{field}`"
        problem = Problem(
            code=Code.FIELD_UNKNOWN,
            message=message,
            hint=f"{hint}the fields are {', '.join(f'`{each}`' for each in known)}",
            handler=".".join(path) or None,
        )
        found.append(((*path, field), problem))


def _check_topics(path: Path, where: str, named: list[str], topics: list[str], found: list[Misfit]) -> None:
    handler = ".".join(path)
    for topic in named:
        if topic not in topics:
            message = f"`{where}` of {handler} names the topic {topic!r}, which is not declared"
            hint = f"{near(topic, topics, found)}add it to `topics`, or use one of {_shown(topics)}"
            problem = Problem(code=Code.TOPIC_UNKNOWN, message=message, hint=hint, handler=handler)
            found.append(((*path, where, topic), problem))


def _check_shared_topics(declaration: Declaration, found: list[Misfit]) -> None:
    owners: dict[str, str] = {}
    for name, consumer in declaration.consumers.items():
        for topic in dict.fromkeys(consumer.subscribe):
            if topic in owners:
                message = f"the consumers {owners[topic]!r} and {name!r} both subscribe to {topic!r}"
                hint = "a topic has one consumer: publish to another topic for the second consumer"
                handler = f"consumers.{name}"
                problem = Problem(code=Code.TOPIC_SHARED, message=message, hint=hint, handler=handler)
                found.append((("consumers", name, "subscribe", topic), problem))
            else:
                owners[topic] = name


def _shown(topics: list[str]) -> str:
    return ", ".join(repr(topic) for topic in topics[:10]) or "none"
