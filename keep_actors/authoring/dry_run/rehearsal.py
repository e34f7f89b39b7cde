"""Evaluates a script on the pending events of a file: run after run, each on what the last one left.

It is given doors whose connectors have no code that changes anything, a reader's connection, and no items: what
`mutate` wants is read off and shown. `next` is not run: it would need the answer of a call that was not made.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from keep_actors import permissions
from keep_actors.authoring import admission
from keep_actors.authoring.dry_run.backlog import Backlog, ReadFinished, finished
from keep_actors.authoring.dry_run.found import DryRunFacts, WantedScript, find, read
from keep_actors.authoring.dry_run.report import (
    Arrival,
    DryRunRefused,
    GrantVerdict,
    Published,
    Rehearsal,
    RehearsalFailure,
    Report,
    RestReason,
    Simulated,
    Unfinished,
    WantedCall,
)
from keep_actors.connectors import Catalog, Connector
from keep_actors.host.host import Services
from keep_actors.host.run_slots import RunSlots
from keep_actors.host.script import Script
from keep_actors.kernel import VirtualTime, WallTime
from keep_actors.permissions import Envelope, Grant
from keep_actors.policy import Policy
from keep_actors.run.context import CannotGoOn, RunContext
from keep_actors.run.evaluation import Evaluation
from keep_actors.run.external_calls import counted
from keep_actors.run.failures import Failure
from keep_actors.run.gate import ScriptPhase
from keep_actors.run.record import Record, Writes
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.sandbox_pool.limits import limits_for
from keep_actors.sandbox_pool.pool import PoolMode
from keep_sandbox import IssuedMutation as Issued
from keep_storage import reads
from keep_storage.errors import Reason, Rejected
from keep_storage.ids import Millis
from keep_storage.model import Event, EventStatus, FailureClass, HandlerKind
from keep_storage.model import StoredGrant as StoredGrant
from keep_storage.operations import Publish, UseGrant
from keep_storage.sqlite import open_reader
from keep_storage.transaction import Queries, Reader


async def dry_run(
    source: str,
    path: str | Path,
    connectors: Iterable[Connector] = (),
    *,
    workflow: str | None = None,
    author: str = "",
    against: str | None = None,
    producer: str | None = None,
    limit: int = 50,
    call_reads: bool = True,
    grants: Iterable[str | Grant] = (),
    policy: Policy | None = None,
    sandbox: PoolMode = "jailed",
    now: Millis | None = None,
    seed: int = 0,
) -> Report:
    """What this script would do with what is pending for a workflow in a file, were it deployed with the same words.

    `workflow` is the one that is meant, by id or by name: needed unless the script is the one that runs, because reads
    are made with its grants. A script by another `author` than the newest version's has none of them.

    At most `limit` runs are simulated. `against` is the number of a version in the file that gets the same events.
    With `producer` that producer is evaluated instead, on its last state. Reads are real unless `call_reads` is
    false; then a script that reads fails there. `grants` are taken for given beside those of the workflow. `now` and
    `seed` are what the scripts see as the time and as chance.

    Raises `DeployRefused` if the script would be, `DryRunRefused`, and what opening the file or the sandbox raises.
    """
    at = WallTime().now() if now is None else now
    looking = Catalog(connectors).for_looking(call_reads=call_reads)
    async with AsyncExitStack() as stack:
        reader = open_reader(str(path))
        stack.callback(reader.close)
        pool = await stack.enter_async_context(SandboxPool.open(mode=sandbox, limits=limits_for(sandbox)))
        if call_reads:
            await stack.enter_async_context(looking.opened())
        inspection = await pool.inspect(source, looking.kinds())
        policy = policy or Policy()
        declared = admission.checked(inspection, looking.kinds(), "UTC", policy, at)
        wanted = WantedScript(source, declared, workflow, author)
        found = await read(reader, partial(find, wanted=wanted, against=against, at=at))
        given = [permissions.as_grant(each) for each in grants]
        permissions.check_known(given, looking)

        async def look(topic: str, message_ids: Sequence[str]) -> list[Event]:
            asked = partial(finished, workflow_id=found.workflow.id, topic=topic, message_ids=message_ids)
            return await read(reader, asked)

        def stage(script: Script, version: str, major: int) -> "_Stage":
            doors = Services(
                time=VirtualTime(at),
                rng=random.Random(seed),  # noqa: S311  # seeds of scripts, no secrets
                pool=pool,
                catalog=looking,
                turnstile=RunSlots(1),
                policy=policy,
                policies={},
            )
            stored = [*_stored(given, found.workflow.id, major), *found.grants.get(major, ())]
            return _Stage(doors, found, script, version, Envelope(stored), _Paper(found.used), look)

        new = stage(Script("new", source, declared.declaration, declared.uses), "new", found.major)
        old = found.against
        past = stage(Script.of(old), f"{old.major}.{old.minor}", old.major) if old is not None else None
        perform = partial(_produce, reader, producer) if producer is not None else partial(_consume, limit)
        return Report(
            workflow=found.workflow.name,
            producer=producer,
            new=await perform(new),
            old=await perform(past) if past is not None else None,
            not_run=sorted(declared.declaration.jobs),
        )


def _stored(grants: Iterable[Grant], workflow_id: str, major: int) -> list[StoredGrant]:
    wanted = permissions.operations_for(workflow_id, major, grants, "")
    return [StoredGrant(workflow_id, major, each.permission, each.policy, each.limits, "", 0) for each in wanted]


class _Paper:
    """In the place of the storage: counts what grants limit, and keeps nothing."""

    def __init__(self, used: Mapping[str, int]) -> None:
        self._used = Counter(used)

    async def advance(self, operations: Writes) -> tuple[Any, ...]:
        for operation in operations:
            assert isinstance(operation, UseGrant), "a dry run writes nothing"
            if self._used[operation.permission] >= operation.per_day:
                words = f"The permission {operation.permission!r} is for {operation.per_day} call(s) a day."
                raise Rejected(Reason.GRANT_USED_UP, words)
            self._used[operation.permission] += 1
        return (None,) * len(operations)


# One script.


class _Stage:
    """A script, with all that its runs are given."""

    def __init__(
        self,
        doors: Services,
        found: DryRunFacts,
        script: Script,
        version: str,
        envelope: Envelope,
        paper: _Paper,
        look: ReadFinished,
    ) -> None:
        self.doors = doors
        self.found = found
        self.script = script
        self.version = version
        self.envelope = envelope
        self.backlog = Backlog(found.pending, look)
        self._paper = paper

    def context(self, handler: str, kind: HandlerKind) -> RunContext:
        """For one run."""
        return RunContext(
            self.doors,
            self.found.workflow,
            self.script,
            handler,
            kind,
            self.doors.ids.new("run"),
            self.envelope,
            Record((), self._paper.advance, self.doors.time),
            self.backlog,
        )


async def _consume(limit: int, stage: _Stage) -> Rehearsal:
    runs: list[Simulated] = []
    ends: list[Unfinished] = []
    for handler, consumer in stage.script.declaration.consumers.items():
        rest: RestReason | None = None
        while rest is None:
            if stage.backlog.count(consumer.subscribe) == 0:
                rest = "nothing"
            elif len(runs) >= limit:
                rest = "limit"
            else:
                runs.append(await _simulated(stage, handler))
                rest = "failed" if runs[-1].failure else None if runs[-1].events else "sleeps"
        left, is_more = stage.backlog.count(consumer.subscribe), stage.backlog.is_more(consumer.subscribe)
        ends.append(Unfinished(handler, rest, left, is_more))
    return Rehearsal(version=stage.version, runs=runs, ends=ends)


async def _simulated(stage: _Stage, handler: str) -> Simulated:
    """One run, up to the call it wants."""
    context = stage.context(handler, HandlerKind.CONSUMER)
    consumer, evaluation = stage.script.declaration.consumers[handler], Evaluation(context)
    shown = Simulated(handler=handler)
    try:
        async with stage.doors.turnstile.turn():
            evaluation.check_connectors()
            prepared = await evaluation.prepare(stage.found.states.get(handler))
            events = stage.backlog.reserve(handler, prepared.reservations, consumer.subscribe)
            shown = Simulated(handler=handler, events=events, title=prepared.title, wake_at=prepared.wake_at)
            if prepared.reservations and consumer.mutate and (issued := await evaluation.mutate(prepared)) is not None:
                shown = msgspec.structs.replace(shown, wants=await _wanted(context, evaluation, issued))
    except CannotGoOn as error:
        shown = msgspec.structs.replace(shown, failure=_failed(error.failure))
    except Rejected as error:
        shown = msgspec.structs.replace(shown, failure=RehearsalFailure(FailureClass.PERMISSION, f"{handler}: {error}"))
    return msgspec.structs.replace(shown, logs=list(context.logs))


async def _wanted(context: RunContext, evaluation: Evaluation, issued: Issued) -> WantedCall:
    """The call, and what the grants would make of it. A mistake in its parameters is a failure of the run."""
    verdict: GrantVerdict = "allowed"
    why = ""
    try:
        wanted, _ = evaluation.wanted(issued)
        counted(context, wanted)
        await context.record.save()
        verdict = "asked" if context.envelope.asks_first(wanted.permission) else "allowed"
    except CannotGoOn as error:
        if error.failure.cls is not FailureClass.PERMISSION:
            raise
        verdict, why = "refused", error.failure.message
    except Rejected as error:
        verdict, why = "refused", str(error)
    method = context.host.catalog.get(issued.name)
    names = method.signature.names if method is not None else []
    return WantedCall(issued.name, msgspec.Raw(issued.params.encode()), verdict, why, names)


async def _produce(reader: Reader, producer: str, stage: _Stage) -> Rehearsal:
    declaration = stage.script.declaration
    if producer not in declaration.producers:
        what = "is a job, and jobs are not dry-run" if producer in declaration.jobs else "is no producer"
        there = ", ".join(declaration.producers) or "none"
        raise DryRunRefused(f"{producer!r} {what} in version {stage.version}; its producers are: {there}")
    context = stage.context(producer, HandlerKind.PRODUCER)
    evaluation, failure, state = Evaluation(context), None, None
    try:
        async with stage.doors.turnstile.turn():
            evaluation.check_connectors()
            address, last = f"producers.{producer}", stage.found.states.get(producer)
            state = await evaluation.by_the_clock(ScriptPhase.PRODUCER, address, last)
    except CannotGoOn as error:
        failure = _failed(error.failure)
    except Rejected as error:
        failure = RehearsalFailure(FailureClass.PERMISSION, f"{producer}: {error}")
    published = [] if failure else context.publishes
    shown = await read(reader, partial(_arrivals, workflow_id=stage.found.workflow.id, published=published))
    kept = None if state is None else msgspec.Raw(state.encode())
    return Rehearsal(version=stage.version, published=shown, failure=failure, state=kept, logs=list(context.logs))


def _arrivals(q: Queries, workflow_id: str, published: list[Publish]) -> list[Published]:
    found: list[Published] = []
    seen: set[tuple[str, str]] = set()
    for each in published:
        event = reads.event(q, workflow_id, each.topic, each.message_id)
        is_pending = event.status is EventStatus.PENDING if event is not None else (each.topic, each.message_id) in seen
        arrival: Arrival = "replaces" if is_pending else "new" if event is None else "known"
        seen.add((each.topic, each.message_id))
        payload = msgspec.Raw(each.payload.encode())
        found.append(Published(each.topic, each.message_id, each.title, payload, arrival))
    return found


def _failed(failure: Failure) -> RehearsalFailure:
    return RehearsalFailure(failure.cls, failure.message, failure.place)
