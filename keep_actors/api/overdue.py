"""What has waited for long though nobody was asked, in words for a person. Reads only.

A handler that keeps failing is tried again by itself; an old event may wait for a reason; a question that nobody
answered is a no by now. People who look see it; of the first they are told.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from keep_actors.policy import Policy, in_words
from keep_storage import overdue_reads, reads
from keep_storage.ids import Millis
from keep_storage.model import Handler, Workflow, WorkflowStatus
from keep_storage.transaction import Queries

if TYPE_CHECKING:  # a command that only looks loads no runtime
    from keep_actors.host.host import Services

_SAID_FOR_MS: Final = 7 * 86_400_000
"""How long people who look see that a question was answered by nobody."""

_RUNS_LOOKED_AT: Final = 20
_TRIED_AGAIN: Final = "Nothing, unless you know why: it is tried again by itself."


class Moment(msgspec.Struct, frozen=True):
    """When somebody looks, and how patient each workflow is, by its name."""

    now: Millis
    policy_of: Callable[[str], Policy] = lambda _: Policy()
    stale_after_ms: Millis = Policy().stale_after_ms
    """The shortest of all of them: what is younger is stale nowhere."""
    is_owned: bool = True
    """A runtime has the file. If not, nothing is being made, whatever the file says."""
    started_at: Millis = 0
    """When that runtime started, if it is known."""


def moment_of(host: "Services") -> Moment:
    """Now, by the rules of a runtime."""
    stale_after_ms = min(each.stale_after_ms for each in host.policies)
    return Moment(host.time.now(), host.policy_of, stale_after_ms, started_at=host.started_at)


class Overdue(msgspec.Struct, frozen=True):
    """Something that has waited for long."""

    kind: Literal["failing", "stale", "expired"]
    words: str
    about: str
    can_do: str


class Failing(msgspec.Struct, frozen=True):
    """A handler that fails and is tried again by itself."""

    handler: str
    since: Millis
    spent_ms: Millis
    """How long it was tried in vain: without a time in which no process tried it."""
    times: int
    """In a row."""
    retry_at: Millis


def failing_of(workflow: Workflow, handlers: Iterable[Handler], at: Moment) -> Iterator[Failing]:
    """Those of these handlers of a workflow that are tried again: not if it is stopped, and waits for a person."""
    if workflow.error or workflow.maintenance or workflow.status is not WorkflowStatus.ACTIVE:
        return
    for each in handlers:
        if each.failing_since is not None and each.retry_at is not None:
            policy = at.policy_of(workflow.name)
            tried_since = policy.tried_since(each.failing_since, each.retry_at, at.started_at)
            yield Failing(each.name, each.failing_since, at.now - tried_since, each.failures, each.retry_at)


def workflows(q: Queries, at: Moment) -> list[Workflow]:
    """Those in which something may be overdue."""
    stale_before = at.now - at.stale_after_ms
    return overdue_reads.workflows_overdue(q, stale_before=stale_before, expired_after=at.now - _SAID_FOR_MS)


def next_told_at(q: Queries, at: Moment) -> Millis | None:
    """When people are to be told next of a handler that fails, if nothing happens before."""
    times = []
    for handler in overdue_reads.failing_handlers(q):
        workflow = reads.workflow(q, handler.workflow_id)
        assert workflow is not None, "a handler has its workflow"
        patience_ms = at.policy_of(workflow.name).notice_after_ms
        times += [at.now - each.spent_ms + patience_ms for each in failing_of(workflow, [handler], at)]
    return min((each for each in times if each > at.now), default=None)


def overdue_of(q: Queries, workflow: Workflow, at: Moment) -> Iterator[Overdue]:
    """What of one workflow is."""
    policy = at.policy_of(workflow.name)
    for failing in failing_of(workflow, overdue_reads.failing_handlers(q, workflow.id), at):
        if _is_long(failing, policy, at.now):
            words = f"{failing.handler} has failed for {in_words(failing.spent_ms)}, {failing.times} times in a row"
            yield Overdue("failing", f"{words}{_last_words(q, workflow, failing)}", failing.handler, _TRIED_AGAIN)
    for stale in overdue_reads.stale_topics(q, workflow.id, at.now - policy.stale_after_ms):
        days = (at.now - stale.event.created_at) // 86_400_000
        words = f"Event {stale.event.message_id!r} of {stale.topic!r} has been pending for {days} days."
        yield Overdue("stale", words, stale.topic, "Look why its consumer does not take it, or skip it.")
    for mutation in overdue_reads.refused_by_policy(q, workflow.id, at.now - _SAID_FOR_MS):
        call = f"{mutation.connector}.{mutation.method}"
        words = f"{mutation.title or 'A call'}: {call} was not made, a no by policy: {mutation.resolved_why}."
        can_do = "Publish the event anew under another id, or reprocess the item, if it is wanted after all."
        yield Overdue("expired", words, mutation.id, can_do)


def _is_long(failing: Failing, policy: Policy, now: Millis) -> bool:
    """Whether it has failed for as long as people are patient. What is being tried for the first time after that may
    pass at this moment."""
    due_ms = now - failing.retry_at
    return failing.spent_ms - max(due_ms, 0) >= policy.notice_after_ms + (due_ms >= 0)


def _last_words(q: Queries, workflow: Workflow, failing: Failing) -> str:
    """Why it failed the last time, unless other handlers have run too often since then."""
    last = reads.runs(q, workflow.id, limit=_RUNS_LOOKED_AT)
    words = next((each.error_message for each in last if each.handler == failing.handler and each.error_message), "")
    return f", the last time with: {words}" if words else "."
