"""Matters that have waited for long though no person was asked, in words for people. Reads only.

A handler that keeps failing is tried again by itself; an old event may wait for a reason; a question without an answer
has become a no. People who look see them; notices are sent only about the first.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from keep_actors.policy import Policy, in_words
from keep_storage import attention_reads, lookups, reads
from keep_storage.ids import Millis
from keep_storage.model import AttentionKind, AttentionRow, Handler, Workflow
from keep_storage.transaction import Queries

if TYPE_CHECKING:  # a command that only looks loads no runtime
    from keep_actors.host.host import Services

SHOWN_FOR_MS: Final = 7 * 86_400_000
"""How long people who look see a question that expired without an answer."""

_RUNS_LOOKED_AT: Final = 20
_TRIED_AGAIN: Final = "Nothing, unless you know why: it is tried again by itself."


class Moment(msgspec.Struct, frozen=True):
    """A time at which people look, and the policy of each workflow, by its name."""

    now: Millis
    policy_of: Callable[[str], Policy] = lambda _: Policy()
    stale_after_ms: Millis = Policy().stale_after_ms
    """The shortest of all policies: a younger event is stale nowhere."""
    is_owned: bool = True
    """A runtime has the file. If not, no call is being made, whatever the file says."""
    started_at: Millis = 0
    """The start of that runtime, if it is known."""


def moment_of(host: "Services") -> Moment:
    """Now, by the rules of a runtime."""
    stale_after_ms = min(each.stale_after_ms for each in host.policies)
    return Moment(host.time.now(), host.policy_of, stale_after_ms, started_at=host.started_at)


class Overdue(msgspec.Struct, frozen=True):
    """A matter that has waited for long."""

    words: str
    about: str
    can_do: str


class Failing(msgspec.Struct, frozen=True):
    """A handler that fails and is tried again by itself."""

    handler: str
    since: Millis
    spent_ms: Millis
    """The time that it was tried in vain: without a time in which no process tried it."""
    times: int
    """In a row."""
    retry_at: Millis


def failing_of(workflow: Workflow, handlers: Iterable[Handler], at: Moment) -> Iterator[Failing]:
    """Describe handlers of a workflow that are failing, as `attention_reads.failing_handlers` lists them."""
    policy = at.policy_of(workflow.name)
    for each in handlers:
        assert each.failing_since is not None and each.retry_at is not None, "it is failing"  # noqa: PT018
        tried_since = policy.tried_since(each.failing_since, each.retry_at, at.started_at)
        yield Failing(each.name, each.failing_since, at.now - tried_since, each.failures, each.retry_at)


def next_notice_at(q: Queries, at: Moment) -> Millis | None:
    """The time of the next notice about a handler that fails, if nothing happens before."""
    times = []
    for handler in attention_reads.failing_handlers(q):
        workflow = reads.workflow(q, handler.workflow_id)
        assert workflow is not None, "a handler has its workflow"
        patience_ms = at.policy_of(workflow.name).notice_after_ms
        times += [at.now - each.spent_ms + patience_ms for each in failing_of(workflow, [handler], at)]
    return min((each for each in times if each > at.now), default=None)


def overdue(q: Queries, workflow: Workflow, row: AttentionRow, at: Moment) -> Overdue | None:
    """Describe a matter of one of these kinds. None if the policy of its workflow waits for longer."""
    policy, about = at.policy_of(workflow.name), row.about or ""
    match row.kind:
        case AttentionKind.FAILING:
            return _failing(q, workflow, about, at)
        case AttentionKind.STALE:
            if row.since >= at.now - policy.stale_after_ms:
                return None
            found = lookups.event(q, about)
            assert found is not None, "an event is never deleted"
            days = (at.now - row.since) // 86_400_000
            words = f"Event {found.event.message_id!r} of {found.topic!r} has been pending for {days} days."
            return Overdue(words, found.topic, "Find out why its consumer does not take it, or skip it.")
        case AttentionKind.EXPIRED:
            mutation = reads.mutation(q, about)
            assert mutation is not None, "a line of the ledger is never deleted"
            call = f"{mutation.connector}.{mutation.method}"
            words = f"{mutation.title or 'A call'}: {call} was not made, refused by policy: {mutation.resolved_why}."
            can_do = "Publish the event again under another id, or reprocess the item, if it is wanted after all."
            return Overdue(words, mutation.id, can_do)
        case _:
            raise AssertionError(f"a person is asked about {row.kind}")


def _failing(q: Queries, workflow: Workflow, name: str, at: Moment) -> Overdue | None:
    handler = reads.handler(q, workflow.id, name)
    assert handler is not None, "it has just been listed"
    [failing] = failing_of(workflow, [handler], at)
    if not _is_long(failing, at.policy_of(workflow.name), at.now):
        return None
    words = f"{name} has failed for {in_words(failing.spent_ms)}, {failing.times} times in a row"
    return Overdue(f"{words}{_last_words(q, workflow, failing)}", name, _TRIED_AGAIN)


def _is_long(failing: Failing, policy: Policy, now: Millis) -> bool:
    """It has failed for as long as people are patient. The first try after that time may succeed at this moment, so it
    does not count before it has ended."""
    due_ms = now - failing.retry_at
    return failing.spent_ms - max(due_ms, 0) >= policy.notice_after_ms + (due_ms >= 0)


def _last_words(q: Queries, workflow: Workflow, failing: Failing) -> str:
    """The error of its last run, unless other handlers have run too often since then."""
    last = reads.runs(q, workflow.id, limit=_RUNS_LOOKED_AT)
    words = next((each.error_message for each in last if each.handler == failing.handler and each.error_message), "")
    return f", the last time with: {words}" if words else "."
