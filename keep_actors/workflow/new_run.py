"""A planned step becomes a run that has not begun: its facts, and the operations that create it."""

from typing import Any

from keep_actors.host.host import Host
from keep_actors.run.failures import Before
from keep_actors.run.machine import RunMachine
from keep_actors.run.state import RunFacts
from keep_actors.script import Script
from keep_actors.workflow.outlook import Outlook, writes_seen
from keep_actors.workflow.plan import StartRetry, StartRun
from keep_storage.model import HandlerKind, Phase
from keep_storage.operations import CreateRetryRun, CreateRun, CreateSession, Operation


def new_run(outlook: Outlook, step: StartRun | StartRetry, script: Script, host: Host) -> RunMachine:
    """Make the run that the plan wants. It is created in the file with the first thing that it writes."""
    workflow, handler = outlook.snapshot.workflow, outlook.handler
    assert handler is not None, "what is planned is declared"
    policy = host.policy_of(workflow.name)
    run_id, session_id = host.ids.new("run"), outlook.snapshot.open_session_id
    opening: list[Operation[Any]] = []
    if session_id is None:
        session_id = host.ids.new("ses")
        opening.append(CreateSession(session_id, workflow.id, step.trigger))
    if isinstance(step, StartRetry):
        opening.append(CreateRetryRun(run_id, step.run_id, session_id))
    else:
        phase = Phase.PREPARING if handler.kind is HandlerKind.CONSUMER else Phase.PENDING
        on_unknown = policy.on_unknown_of(handler.kind, outlook.snapshot.parked)
        seen = writes_seen(outlook, handler)
        opening.append(CreateRun(run_id, session_id, handler.name, phase, seen, on_unknown))
    since = handler.failing_since
    tried_since = None if since is None else policy.tried_since(since, handler.retry_at, host.started_at)
    facts = RunFacts(
        run_id,
        workflow,
        script,
        handler.name,
        handler.kind,
        policy,
        host.catalog,
        state=handler.state,
        before=Before(handler.failures, tried_since),
        retried=outlook.retried,
        trigger=step.trigger,
        session_id=session_id,
        parks=handler.kind is HandlerKind.JOB or outlook.snapshot.parked < policy.parked_max,
    )
    return RunMachine.new(facts, outlook.envelope, host.ids, host.rng, tuple(opening))
