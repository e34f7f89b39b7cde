"""Drives runs of a script on the pending events of a file, each on the events that the last one left.

The machine is that of a real run; the driver stops before the first thing that would be written. Its connectors have no
code that changes anything, and its connection cannot write. `next` is not run: it would need the answer of a call that
was not made.
"""

import random
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec

from keep_actors import permissions
from keep_actors.authoring import admission
from keep_actors.authoring.dry_run.backlog import Backlog, finished
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
from keep_actors.kernel import VirtualTime, WallTime
from keep_actors.permissions import Envelope, Grant
from keep_actors.policy import Policy
from keep_actors.run.drive import RunDriver
from keep_actors.run.effects import Invoke, RunEffect, Save
from keep_actors.run.gate import ScriptPhase
from keep_actors.run.machine import SAVES, RunMachine
from keep_actors.run.state import At, RunFacts
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.sandbox_pool.limits import RUN_LIMITS
from keep_actors.sandbox_pool.pool import PoolMode
from keep_actors.script import Script
from keep_storage import reads
from keep_storage.errors import Rejected
from keep_storage.ids import Millis
from keep_storage.model import Event, EventStatus, FailureClass, HandlerKind, StoredGrant
from keep_storage.operations import Publish
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
    """Run a script on the pending events of a workflow in a file, as if it were deployed, without any effect.

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
        pool = await stack.enter_async_context(SandboxPool.open(mode=sandbox, limits=RUN_LIMITS))
        if call_reads:
            await stack.enter_async_context(looking.opened())
        rules = policy or Policy()
        inspected = await admission.inspected(pool, source, looking.kinds(), "UTC", lambda _: rules, at)
        declared = inspected.declared()
        wanted = WantedScript(source, declared, workflow, author)
        found = await read(reader, partial(find, wanted=wanted, against=against, at=at))
        given = [permissions.as_grant(each) for each in grants]
        permissions.check_known(given, looking)

        async def look(topic: str, message_ids: Sequence[str]) -> list[Event]:
            asked = partial(finished, workflow_id=found.workflow.id, topic=topic, message_ids=message_ids)
            return await read(reader, asked)

        def stage(script: Script, version: str, major: int) -> "_Stage":
            services = Services(
                time=VirtualTime(at),
                rng=random.Random(seed),  # noqa: S311  # seeds of scripts, no secrets
                pool=pool,
                catalog=looking,
                run_slots=RunSlots(1),
                policy=rules,
                policies={},
            )
            stored = [*_stored(given, found.workflow.id, major), *found.grants.get(major, ())]
            return _Stage(services, found, script, version, Envelope(stored), Backlog(found.pending, look, found.used))

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


class _Stage:
    """A script, with everything that its runs are given."""

    def __init__(
        self,
        services: Services,
        found: DryRunFacts,
        script: Script,
        version: str,
        envelope: Envelope,
        backlog: Backlog,
    ) -> None:
        self.found = found
        self.script = script
        self.version = version
        self.backlog = backlog
        self._services = services
        self._envelope = envelope

    async def rehearse(self, handler: str, kind: HandlerKind) -> tuple[RunMachine, RunEffect]:
        """Drive one run up to the first thing that it would write, or to `next`. Returns where it stands."""
        services, workflow = self._services, self.found.workflow
        policy, state = services.policy_of(workflow.name), self.found.states.get(handler)
        run_id = services.ids.new("run")
        facts = RunFacts(run_id, workflow, self.script, handler, kind, policy, services.catalog, state=state)
        machine = RunMachine.new(facts, self._envelope, services.ids, services.rng)
        consumer = self.script.declaration.consumers.get(handler)
        self.backlog.begin(consumer.subscribe if consumer is not None else ())
        async with services.run_slots.turn():
            driver = RunDriver(machine, services, self.backlog, has_slot=True)
            effect = machine.start(services.time.now())
            while not (machine.state.at in SAVES - {At.SAVING_BEFORE_READ} or _is_next(effect)):
                effect = await driver.step(effect)
        return machine, effect


def _is_next(effect: RunEffect) -> bool:
    return isinstance(effect, Invoke) and effect.phase is ScriptPhase.NEXT


async def _consume(limit: int, stage: _Stage) -> Rehearsal:
    runs: list[Simulated] = []
    ends: list[Unfinished] = []
    for handler, consumer in stage.script.declaration.consumers.items():
        rest: RestReason | None = None
        while rest is None:
            if stage.backlog.left(consumer.subscribe) == 0:
                rest = "nothing"
            elif len(runs) >= limit:
                rest = "limit"
            else:
                runs.append(await _simulated(stage, handler))
                rest = "failed" if runs[-1].failure else None if runs[-1].events else "sleeps"
        left, is_more = stage.backlog.left(consumer.subscribe), stage.backlog.is_more(consumer.subscribe)
        ends.append(Unfinished(handler, rest, left, is_more))
    return Rehearsal(version=stage.version, runs=runs, ends=ends)


async def _simulated(stage: _Stage, handler: str) -> Simulated:
    """One run, up to the call it wants."""
    machine, effect = await stage.rehearse(handler, HandlerKind.CONSUMER)
    state = machine.state
    shown = Simulated(handler=handler, logs=list(state.logs))
    wants = _wanted(stage, machine, effect) if state.issued is not None else None
    # A call that is not permitted, or asked about first, is shown as such; the run did what it could.
    failure = None if wants is not None else _failure(machine)
    if state.prepared is not None and (failure is None or state.phase is not ScriptPhase.PREPARE):
        events = stage.backlog.reserve(state.prepared.reservations)
        shown = msgspec.structs.replace(
            shown, events=events, title=state.prepared.title, wake_at=state.prepared.wake_at
        )
    return msgspec.structs.replace(shown, wants=wants, failure=failure)


def _wanted(stage: _Stage, machine: RunMachine, effect: RunEffect) -> WantedCall | None:
    """The call, and what the grants would make of it. None if a mistake in it is a failure of the run."""
    issued, failure = machine.state.issued, machine.state.failure
    assert issued is not None, "`mutate` wants a call"
    verdict: GrantVerdict = "allowed"
    why = ""
    if failure is not None:
        if failure.cls is not FailureClass.PERMISSION:
            return None
        is_asked = failure.about == "approval"
        verdict, why = ("asked", "") if is_asked else ("refused", failure.message)
    else:
        assert isinstance(effect, Save), "a call that is allowed is recorded"
        try:
            stage.backlog.count(effect.operations)
        except Rejected as error:
            verdict, why = "refused", str(error)
    method = machine.facts.catalog.get(issued.name)
    names = method.signature.names if method is not None else []
    return WantedCall(issued.name, msgspec.Raw(issued.params.encode()), verdict, why, names)


async def _produce(reader: Reader, producer: str, stage: _Stage) -> Rehearsal:
    declaration = stage.script.declaration
    if producer not in declaration.producers:
        what = "is a job, and jobs are not dry-run" if producer in declaration.jobs else "is no producer"
        there = ", ".join(declaration.producers) or "none"
        raise DryRunRefused(f"{producer!r} {what} in version {stage.version}; its producers are: {there}")
    machine, _ = await stage.rehearse(producer, HandlerKind.PRODUCER)
    state, failure = machine.state, _failure(machine)
    published = [] if failure else list(state.publishes)
    shown = await read(reader, partial(_arrivals, workflow_id=stage.found.workflow.id, published=published))
    kept = None if state.next_state is None else msgspec.Raw(state.next_state.encode())
    return Rehearsal(version=stage.version, published=shown, failure=failure, state=kept, logs=list(state.logs))


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


def _failure(machine: RunMachine) -> RehearsalFailure | None:
    failure = machine.state.failure
    return None if failure is None else RehearsalFailure(failure.cls, failure.message, failure.place)
