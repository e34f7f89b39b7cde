"""`python -m tests.simulation.planted`: bugs put into a copy of the product, each of which the simulator has to find.

A simulator that finds nothing proves nothing, unless it is known what it would have found. For each bug the report
says which seed caught it and what was seen.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

ROOT: Final = Path(__file__).parents[2]
_COPIED: Final = ("keep_actors", "storage", "sandbox", "tests")


class Bug(NamedTuple):
    """What is changed, and where."""

    name: str
    path: str
    old: str
    new: str


BUGS: Final = (
    Bug(
        "what came while a consumer looked is no news to it",
        "keep_actors/workflow/outlook.py",
        "    return next(each.writes for each in outlook.snapshot.handlers if each.name == handler.name)\n",
        "    return 1 << 60\n",
    ),
    Bug(
        "the events of an uncertain run are released",
        "storage/keep_storage/disposition.py",
        "return Disposition.HOLD_UNCERTAIN",
        "return Disposition.RELEASE",
    ),
    Bug(
        "a retry does not take over the reservations",
        "storage/keep_storage/runs.py",
        "    event_rows.transfer_reservations(tx, failed.id, retry.id, now)\n",
        "",
    ),
    Bug(
        "what a consumer publishes is written before its commit",
        "keep_actors/run/drive.py",
        "        self._host.reach(Point.SAVE, place)\n",
        "        self._host.reach(Point.SAVE, place)\n"
        "        last = effect.operations[-1] if effect.operations else None\n"
        "        if place == 'committing' and self._facts.kind == 'consumer' and last.publishes:\n"
        "            from keep_storage.operations import PublishEvents\n"
        "            from msgspec.structs import replace\n"
        "            early = PublishEvents(self._facts.workflow.id, last.publishes)\n"
        "            await self._storage.save((*effect.operations[:-1], early))\n"
        "            effect = Save((replace(last, publishes=()),))\n",
    ),
    Bug(
        "a call that happened in an item is made again by the next run",
        "storage/keep_storage/mutations.py",
        "    if known.status is MutationStatus.APPLIED:\n"
        "        return changed(known, run.workflow_id, run.id, mutation=known.id, replayed=True)\n",
        "    if known.status is MutationStatus.APPLIED:\n        return _record_again(tx, run, known, op, now)\n",
    ),
    Bug(
        "an alarm is lost when there is another",
        "keep_actors/runtime/runtime.py",
        "        else:\n            self._clock.set(workflow_id, at)\n\n    def let_go",
        "        elif self._clock.next_at is None:\n            self._clock.set(workflow_id, at)\n\n    def let_go",
    ),
    Bug(
        "a crash empties the mailbox",
        "keep_actors/kernel/actor.py",
        "            self.mailbox = predecessor.mailbox\n",
        "            self.mailbox = predecessor.mailbox\n            self.mailbox.drain()\n",
    ),
    Bug(
        "an actor is let go while a message waits",
        "keep_actors/kernel/directory.py",
        "        if len(actor.mailbox):\n            return False\n        actor.stop()\n",
        "        actor.mailbox.drain()\n        actor.stop()\n",
    ),
    Bug(
        "`next` is skipped when nothing was reserved",
        "keep_actors/run/machine.py",
        "        self._note_phase(Phase.EMITTING)\n",
        "        self._note_phase(Phase.EMITTING)\n"
        "        if not prepared.reservations:\n"
        "            return self._commit()\n",
    ),
    Bug(
        "an event of another workflow can be reserved",
        "storage/keep_storage/sql/queries.sql",
        "WHERE t.workflow_id = :workflow_id AND t.name = :topic AND t.declared = 1;",
        "WHERE t.name = :topic AND t.declared = 1 ORDER BY e.id IS NULL, t.workflow_id = :workflow_id LIMIT 1;",
    ),
    Bug(
        "a retry of `next` is not told the stored result",
        "keep_actors/run/machine.py",
        "mutation_result_for_next(retried))",
        "mutation_result(MutationOutcome.NONE))",
    ),
    Bug(
        "a commit that failed is taken for one that happened",
        "keep_actors/host/storage_actor.py",
        "                apply.fail(_same_for_another_caller(error))\n            return\n",
        "                apply.answer(None)\n            return\n",
    ),
    Bug(
        "a call that timed out is taken for one that did not happen",
        "keep_actors/connectors/method.py",
        "                return Unknown(words) if is_sent else DidNotHappen(FailureClass.TRANSIENT, words)\n",
        "                return DidNotHappen(FailureClass.TRANSIENT, words)\n",
    ),
    Bug(
        "a lost answer is taken for a failure",
        "keep_actors/connectors/method.py",
        "            case Raised(error=Uncertain() as error):\n                return Unknown(self._words(error))\n",
        "            case Raised(error=Uncertain() as error):\n"
        "                return DidNotHappen(FailureClass.TRANSIENT, self._words(error))\n",
    ),
    Bug(
        "the absence of an effect is believed at once",
        "keep_actors/connectors/method.py",
        "            case Returned(value=NotApplied()) if waited_ms < self.settle_ms:\n",
        "            case Returned(value=NotApplied()) if waited_ms < 0:\n",
    ),
    Bug(
        "a clock that is set forward makes an absence believed",
        "keep_actors/run/drive.py",
        "        waited_ms = host.call_times.waited_ms(mutation.id, lasted_ms)\n",
        "        waited_ms = host.time.now() - (mutation.sent_at or 0) - lasted_ms\n",
    ),
    Bug(
        "a process believes the absence of what another one sent at once",
        "keep_actors/host/call_times.py",
        "(over if over is not None else self._started + timeout_ms)",
        "(over or 0)",
    ),
    Bug(
        "a connector that cannot tell is taken to have found nothing",
        "keep_actors/run/reconcile.py",
        "            return _not_yet(mutation, verdict, policy, now, rng)\n",
        '            return FailMutation(mutation.id, "", Resolver.RECONCILIATION)\n',
    ),
    Bug(
        "a commit does not consume its events",
        "storage/keep_storage/runs.py",
        "    event_rows.consume_events(tx, run.id, now)\n",
        "",
    ),
    Bug(
        "what a dead incarnation wanted to write is written",
        "keep_actors/workflow/active_work.py",
        "        if step.work_id == self._id:\n",
        "        if step.work_id:\n",
    ),
    Bug(
        "an actor that crashed does not recover its run",
        "keep_actors/workflow/actor.py",
        "                    await self._write(recovery(self.name))\n",
        "",
    ),
    Bug(
        "an order that a producer saw is not published",
        "keep_actors/run/ends.py",
        "commit(run_id, next_at, publishes, kept",
        "commit(run_id, next_at, publishes[1:], kept",
    ),
    Bug(
        "an operation that is refused leaves a part of itself",
        "storage/keep_storage/store.py",
        "    except Exception as error:\n        tx.undo()\n",
        "    except Exception as error:\n        tx.release()\n",
    ),
    Bug(
        "the time to wake a consumer is forgotten",
        "storage/keep_storage/runs.py",
        "    rows.set_wake_at(tx, prepared, op.wake_at, now)\n",
        "    rows.set_wake_at(tx, prepared, None, now)\n",
    ),
    Bug(
        "a person's verdict that it did not happen keeps the events",
        "storage/keep_storage/settlement.py",
        "            event_rows.release_events(tx, run.id, now)\n",
        "            pass\n",
    ),
    Bug(
        "recovery forgets approved calls that were in the air",
        "storage/keep_storage/recovery.py",
        "    for mutation in mutation_rows.calls_left_in_doubt(tx, op.workflow_id):\n",
        "    for mutation in mutation_rows.calls_left_in_doubt(tx, op.workflow_id)[:0]:\n",
    ),
    Bug(
        "events have no ordering key",
        "storage/keep_storage/events.py",
        "ordering_key=ordering_key(event.payload, topics[event.topic].ordering),",
        "ordering_key=None,",
    ),
    Bug(
        "the end of a run is not told to its actor when others wait",
        "keep_actors/workflow/actor.py",
        "lambda message: self.mailbox.put_first([message])",
        "lambda message: self.mailbox.put_first([] if isinstance(message, Ended) and len(self.mailbox) else [message])",
    ),
    Bug(
        "a doubt is never looked into again",
        "keep_actors/workflow/plan.py",
        "    if snapshot.reconcile_at is not None and",
        "    if snapshot.reconcile_at == 0 and",
    ),
    Bug(
        "a person is not asked first",
        "keep_actors/run/mutations.py",
        "        if self.state.envelope.asks_first(call.method.permission):\n",
        "        if False:\n",
    ),
    Bug(
        "a question never expires",
        "keep_actors/workflow/plan.py",
        "    if snapshot.approval_expires_at is not None and",
        "    if snapshot.approval_expires_at == 0 and",
    ),
    Bug(
        "an approval can be answered twice",
        "storage/keep_storage/approvals.py",
        "    if approval.status is not ApprovalStatus.OPEN:\n",
        "    if approval.status is ApprovalStatus.EXPIRED:\n",
    ),
    Bug(
        "what is not granted is called all the same",
        "keep_actors/run/calls.py",
        "    if permission not in state.envelope:\n",
        "    if permission not in state.envelope:\n        return None\n",
    ),
    Bug(
        "the first state of a handler is kept for ever",
        "storage/keep_storage/sql/queries.sql",
        "    state = COALESCE(:state, state), next_run_at",
        "    state = COALESCE(state, :state), next_run_at",
    ),
    Bug(
        "a handler is not given its state",
        "keep_actors/workflow/new_run.py",
        "        state=handler.state,\n",
        "        state=None,\n",
    ),
    Bug(
        "the newest event comes first",
        "storage/keep_storage/sql/queries.sql",
        "ORDER BY e.seq LIMIT :limit;\n\n-- name: unfinished_events",
        "ORDER BY e.seq DESC LIMIT :limit;\n\n-- name: unfinished_events",
    ),
    Bug(
        "a verdict on what has changed since is taken",
        "storage/keep_storage/mutations.py",
        "    if expected_version not in (None, mutation.version):\n",
        "    if expected_version == 0:\n",
    ),
    Bug(
        "a person may judge a call that its run is still at work on",
        "storage/keep_storage/settlement.py",
        "    if resolver in VERDICTS and run.status is RunStatus.ACTIVE:\n",
        "    if resolver in VERDICTS and run.status is RunStatus.COMMITTED:\n",
    ),
    Bug(
        "any number of runs is parked",
        "keep_actors/policy.py",
        " and parked < self.parked_max\n",
        "\n",
    ),
    Bug(
        "a proposal that needs a person runs without one",
        "keep_actors/workflow/repair.py",
        ' or proposal.impact != "safe" or begins_to_mutate\n',
        " or begins_to_mutate\n",
    ),
    Bug(
        "a run begins in a workflow that is paused",
        "storage/keep_storage/workflows.py",
        '        reject(Reason.WORKFLOW_NOT_ACTIVE, f"Workflow {workflow_id!r} is {status}.")\n    if error:\n',
        "        pass\n    if error:\n",
    ),
    Bug(
        "a handler that failed is tried again at once",
        "keep_actors/workflow/plan.py",
        "    return None if at is None else max(at, handler.retry_at or 0)\n",
        "    return at\n",
    ),
    Bug(
        "an item that is wanted again is not done again",
        "storage/keep_storage/items.py",
        "item, attempt=item.attempt + 1, state",
        "item, attempt=item.attempt, state",
    ),
    Bug(
        "a connector that cannot tell is asked for ever",
        "keep_actors/run/reconcile.py",
        "    if policy.reconcile.is_used_up(attempts) or too_long:\n",
        "    if attempts < 0:\n",
    ),
    Bug(
        "a session never ends",
        "keep_actors/workflow/actor.py",
        "            await self._write(FinishSession(outlook.snapshot.open_session_id))\n",
        "            pass\n",
    ),
    Bug(
        "what may pass is tried for ever",
        "keep_actors/run/failures.py",
        "    if now - since >= policy.give_up_after_ms or policy.retry.is_used_up(failures):\n",
        "    if failures < 0:\n",
    ),
    Bug(
        "a script is blamed for an event that a person skipped",
        "keep_actors/run/failures.py",
        "    if error.reason is Reason.EVENT_ALREADY_FINISHED and event_was_skipped:\n",
        "    if error.reason is Reason.EVENT_NOT_FOUND and event_was_skipped:\n",
    ),
    Bug(
        "nobody looks after a workflow whose actor was given up",
        "keep_actors/runtime/runtime.py",
        "        self._clock.set(workflow_id, self.host.time.now() + _AFTER_GIVING_UP_MS)\n",
        "",
    ),
    Bug(
        "an alarm for sooner does not wake the clock",
        "keep_actors/kernel/clock.py",
        "        if at < self._nap_until:\n            self._wake()\n",
        "",
    ),
    Bug(
        "a new script takes over in the middle of a run",
        "keep_actors/workflow/actor.py",
        "                self._between.append(message)\n",
        "                await self._do_between(message)\n",
    ),
    Bug(
        "what an item publishes waits for the end of its job",
        "keep_actors/run/machine.py",
        "        if state.item is not None:\n            hand = replace(",
        "        if False:\n            hand = replace(",
    ),
    Bug(
        "the same call in other words is another one",
        "keep_actors/run/items.py",
        "    key = _identity(item, method, method.identity_of(call.params), subkey)\n",
        "    return ItemScope(item.item_id, _identity(item, method, call.text, subkey), subkey)\n",
    ),
    Bug(
        "a call is recorded whatever a person has said since it was wanted",
        "storage/keep_storage/mutations.py",
        "    _refuse_if_stopped(tx, run, op)\n",
        "",
    ),
    Bug(
        "a call that a person refused is prepared and asked for again",
        "storage/keep_storage/approvals.py",
        "    outcome = MutationOutcome.FAILURE if op.retry else MutationOutcome.SKIPPED\n",
        "    outcome = MutationOutcome.FAILURE\n",
    ),
    Bug(
        "a question is asked for ever",
        "keep_actors/workflow/actor.py",
        "        if asked <= policy.approval_reminders and ",
        "        if asked <= policy.approval_reminders + 99 and ",
    ),
    Bug(
        "a question stops its whole workflow",
        "storage/keep_storage/stopped_runs.py",
        "        case Disposition.HOLD_FOR_APPROVAL:\n            return parks\n",
        "        case Disposition.HOLD_FOR_APPROVAL:\n            return False\n",
    ),
    Bug(
        "a question is asked beside the work though too many are open",
        "keep_actors/workflow/new_run.py",
        "        parks=handler.kind is HandlerKind.JOB or outlook.snapshot.parked < policy.parked_max,\n",
        "        parks=True,\n",
    ),
    Bug(
        "the archive leaves its questions open",
        "storage/keep_storage/archive.py",
        "    for approval in mutation_rows.open_approvals(tx, op.workflow_id):\n",
        "    for approval in mutation_rows.open_approvals(tx, op.workflow_id)[:0]:\n",
    ),
    Bug(
        "a result that `next` has used can be amended",
        "storage/keep_storage/amendments.py",
        "    if user is not None:\n",
        "    if user is None and run.parked:\n",
    ),
    Bug(
        "a note is not waited for",
        "keep_actors/run/drive.py",
        "            await self._storage.save((NoteMutation(mutation.id, mutation.attempts, text),))()\n",
        "            self._storage.save((NoteMutation(mutation.id, mutation.attempts, text),))\n",
    ),
    Bug(
        "the note of an earlier attempt stays",
        "storage/keep_storage/mutations.py",
        '        doubted_at=None,\n        note="",\n        sent_at=now if op.send else known.sent_at,\n',
        "        doubted_at=None,\n        sent_at=now if op.send else known.sent_at,\n",
    ),
)


class Caught(msgspec.Struct):
    """Which seed caught a bug, after how many, and what was seen; -1 if none did."""

    bug: str
    seed: int
    seeds: int
    violation: str
    seconds: float


def plant(bug: Bug, where: Path) -> None:
    """A copy of the tree with the bug in it."""
    for each in _COPIED:
        shutil.copytree(ROOT / each, where / each, ignore=shutil.ignore_patterns("__pycache__"))
    path = where / bug.path
    text = path.read_text("utf-8")
    assert text.count(bug.old) == 1, f"{bug.name}: {bug.path} has the place {text.count(bug.old)} times"
    path.write_text(text.replace(bug.old, bug.new), "utf-8")


def catch(bug: Bug, seeds: int, first: int = 0) -> Caught:
    """Plant a bug in a copy and let the simulator look for it, in a process of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        where = Path(folder)
        plant(bug, where)
        paths = os.pathsep.join(str(where / each) for each in (".", "storage", "sandbox"))
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.until_caught", str(first), str(seeds)],
            cwd=where,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
    took = time.monotonic() - began
    if done.returncode not in (0, 1):
        return Caught(bug.name, -1, seeds, f"the simulator itself failed: {done.stderr[-500:]}", took)
    seed, _, violation = done.stdout.strip().partition(" ")
    return Caught(bug.name, int(seed), int(seed) - first + 1 if seed != "-1" else seeds, violation, took)


@click.command()
@click.option("--seeds", default=2_000, show_default=True, help="How many seeds there are to find each bug.")
@click.option("--jobs", default=os.cpu_count() or 1, help="Bugs to look for at a time.")
@click.option("--only", default="", help="Only bugs with this in their name.")
def main(seeds: int, jobs: int, only: str) -> None:
    """Plant each bug and say which seed caught it. Ends with 1 if one was not."""
    wanted = [bug for bug in BUGS if only in bug.name]
    missed = 0
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(catch, bug, seeds) for bug in wanted]
        for number, each in enumerate(as_completed(running), 1):
            caught = each.result()
            missed += caught.seed < 0
            found = f"seed {caught.seed:<5}" if caught.seed >= 0 else "NOT FOUND"
            click.echo(f"{number:>2} of {len(wanted)}  {found:<10} {caught.bug}: {caught.violation[:150]}")
    click.echo(f"{len(wanted) - missed} of {len(wanted)} planted bugs were found within {seeds} seeds")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
