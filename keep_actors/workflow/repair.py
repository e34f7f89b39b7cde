"""The repair of a script, beside the runs of its workflow: a maintainer proposes, the rules judge.

Runs outside the mailbox, like a run. Returns the operations that write the result down.
"""

import msgspec
from msgspec.structs import replace

from keep_actors.authoring.admission import inspected
from keep_actors.host.host import Host
from keep_actors.kernel.foreign_code import Raised, Returned, TimedOut, carry_out, described
from keep_actors.maintenance import Maintainer, MethodInfo, Proposal, RepairFailed, RepairTask, problems_of
from keep_actors.permissions import Envelope
from keep_actors.policy import Policy
from keep_actors.run.effects import Writes
from keep_actors.script import Script
from keep_actors.text.counted import counted
from keep_actors.workflow import deployment
from keep_sandbox.declaration import Declaration
from keep_storage import reads
from keep_storage.model import FailureClass, MaintenanceTask, Run, ScriptVersion, Workflow
from keep_storage.operations import (
    AddScriptVersion,
    ExitMaintenanceMode,
    HaltWorkflow,
    HoldProposal,
    NoteRepairAttempt,
)
from keep_storage.transaction import Queries


class _Evidence(msgspec.Struct):
    error: str = ""
    place: str = ""
    logs: list[str] = []
    requests: list[str] = []


class _Failure(msgspec.Struct):
    """All there is to know about the failure that is to be repaired."""

    task: MaintenanceTask
    run: Run
    version: ScriptVersion
    latest: ScriptVersion
    """Of the same major version."""
    dropped: set[str]
    """Scripts that were proposed before, and that a person did not want."""
    envelope: Envelope
    repairs: int


async def repair(host: Host, maintainer: Maintainer, workflow: Workflow, script: Script) -> Writes:
    """Ask for a repaired script, and say what becomes of the answer. A bad answer counts like none."""
    failure = await host.read(lambda q: _failure(q, workflow))
    policy = host.policy_of(workflow.name)
    allowed = {name for name, method in host.catalog.methods.items() if method.permission in failure.envelope}
    task = _repair_task(host, workflow, script, failure, policy, allowed)
    ending = await carry_out(lambda: maintainer.repair(task), policy.repair_timeout_ms)
    if isinstance(ending, Returned):
        return await _judged(host, workflow, script, failure, policy, allowed, ending.value)
    return _refused(host, workflow, failure, policy, _problem(ending, policy))


def _problem(ending: Raised | TimedOut, policy: Policy) -> str:
    if isinstance(ending, TimedOut):
        return f"no answer within {policy.repair_timeout_ms} ms"
    if isinstance(ending.error, RepairFailed):
        return str(ending.error)
    return f"the maintainer failed: {described(ending.error)}"


def _failure(q: Queries, workflow: Workflow) -> _Failure:
    task = reads.open_task(q, workflow.id)
    assert task is not None, "a repair was planned because there is a task"
    run = reads.run(q, task.run_id)
    assert run is not None, "a task is about a run"
    version = reads.version(q, workflow.active_version_id) if workflow.active_version_id is not None else None
    assert version is not None, "a workflow that ran has a script, and a version is never deleted"
    # A later major version has grants of its own: the repair of one that was brought back must not come under them.
    versions = reads.versions(q, workflow.id)
    latest = next(each for each in versions if each.major == version.major)
    dropped = {each.source for each in versions if each.activated_at is None}
    handler = reads.handler(q, workflow.id, run.handler)
    envelope = Envelope(reads.grants(q, workflow.id, version.major))
    return _Failure(task, run, version, latest, dropped, envelope, handler.repairs if handler is not None else 0)


def _repair_task(
    host: Host, workflow: Workflow, script: Script, failure: _Failure, policy: Policy, allowed: set[str]
) -> RepairTask:
    evidence = msgspec.json.decode(failure.task.evidence, type=_Evidence)
    return RepairTask(
        workflow_id=workflow.id,
        workflow_name=workflow.name,
        version=f"{failure.version.major}.{failure.version.minor}",
        source=script.source,
        handler=failure.run.handler,
        error=evidence.error or failure.run.error_message,
        place=evidence.place,
        logs=evidence.logs,
        requests=evidence.requests,
        prepare_result=failure.run.prepare_result,
        attempt=failure.repairs + 1,
        attempts_max=policy.repairs_max,
        earlier_problems=[failure.task.problem] if failure.task.problem else [],
        methods=[MethodInfo.of(host.catalog.methods[name]) for name in sorted(allowed)],
        topics=script.declaration.topics,
        mutate_reads=policy.mutate_reads,
    )


async def _judged(
    host: Host,
    workflow: Workflow,
    script: Script,
    failure: _Failure,
    policy: Policy,
    allowed: set[str],
    proposal: Proposal,
) -> Writes:
    """A proposal is untrusted: it becomes the next minor version only if nothing speaks against it."""
    # A repair while a connector is away does not forget it.
    kinds, now = {**script.methods, **host.catalog.kinds()}, host.time.now()
    proposed = await inspected(host.pool, proposal.source, kinds, workflow.timezone, host.policy_of, now)
    inspection = proposed.inspection
    problems = problems_of(
        script.declaration, inspection, allowed, old_source=script.source, new_source=proposal.source
    )
    if proposal.source in failure.dropped:
        problems.append("a person has seen this very script and did not want it")
    # The rules for repairs say more about a problem than those for all scripts, and cover nearly all of them.
    if problems := problems or proposed.lines:
        return _refused(host, workflow, failure, policy, "; ".join(problems))
    version_id, latest, declared = host.ids.new("ver"), failure.latest, proposed.declared()
    # By the author of what it repairs: it stays under their grants, and validation keeps it within them.
    number, author = (latest.major, latest.minor + 1), failure.version.author
    add = AddScriptVersion(version_id, workflow.id, *number, proposal.source, declared.encoded(), author)
    new_calls = {use.name for use in inspection.uses if kinds[use.name] == "mutation"} - set(script.uses)
    if new_calls or _needs_a_person(proposal, script.declaration, declared.declaration, policy):
        return (add, HoldProposal(workflow.id, version_id, proposal.note))
    activate = deployment.activation(version_id, declared.declaration, workflow, now)
    return (add, replace(activate, is_repair=True), ExitMaintenanceMode(workflow.id, by="maintainer", by_person=False))


def _needs_a_person(proposal: Proposal, old: Declaration, new: Declaration, policy: Policy) -> bool:
    """`safe` is the maintainer's own word: it does not cover what changes the outside for the first time."""
    begins_to_mutate = any(each.mutate and not old.consumers[name].mutate for name, each in new.consumers.items())
    return policy.repair_approval == "always" or proposal.impact != "safe" or begins_to_mutate


def _refused(host: Host, workflow: Workflow, failure: _Failure, policy: Policy, problem: str) -> Writes:
    """The attempt counts. After the last one a person is asked."""
    attempts = failure.repairs + 1
    wait_ms = policy.retry.delay_ms(attempts, host.rng)
    note = NoteRepairAttempt(workflow.id, problem, host.time.now() + wait_ms)
    if attempts < policy.repairs_max:
        return (note,)
    words = f"The script failed and could not be repaired in {counted(attempts, 'attempt')}. The last one: {problem}"
    return (note, HaltWorkflow(workflow.id, words, FailureClass.LOGIC))
