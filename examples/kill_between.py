"""Kill a process between "the email was sent" and "it was recorded", start again, and see what is known.

A child process takes an event, writes the call into the ledger, sends the "email" (a line in a file outside the
database) and is killed with SIGKILL before it can record the answer. A second process opens the same database.
Run it: `python examples/kill_between.py`.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from keep_storage import ExecutionModelManager, Ids, Rejected, Store, reads, wall_clock
from keep_storage.model import HandlerKind, Phase, Resolver
from keep_storage.operations import HandlerSpec, Publish, Reserve

WORKFLOW = "wf_welcome"


def deploy(model: ExecutionModelManager) -> None:
    model.create_workflow(WORKFLOW, "Welcome new customers")
    model.add_script_version("ver_1", WORKFLOW, 1, 0, "export default Keep.workflow({ … })")
    model.activate_script("ver_1", ("customer.new",), (HandlerSpec("greet", HandlerKind.CONSUMER, ("customer.new",)),))
    model.resume_workflow(WORKFLOW)
    model.publish_events(WORKFLOW, (Publish("evt_1", "customer.new", "alice", "New customer: alice@example.com"),))


def send_and_die(database: Path, outbox: Path) -> None:
    """What the first process does. It never returns."""
    store = Store.open(database)
    model, ids = ExecutionModelManager(store), Ids(wall_clock)
    deploy(model)
    session = model.create_session(ids.new("ses"), WORKFLOW, "new customer")
    run = model.create_run(ids.new("run"), session.id, "greet", Phase.PREPARING)
    model.update_consumer_phase(run.id, Phase.PREPARED, (Reserve("customer.new", ("alice",)),), "{}", "Greet Alice")
    model.update_consumer_phase(run.id, Phase.MUTATING)
    call = ("gmail", "send", '{"to":"alice@example.com"}')
    model.create_mutation(ids.new("mut"), run.id, *call, idempotency_key=run.id, reconcilable=False, send=True)
    with outbox.open("a") as mail:
        mail.write("To: alice@example.com\n")
    os.kill(os.getpid(), signal.SIGKILL)


def start_again(database: Path, outbox: Path) -> None:
    """What the second process finds, and what a person does about it."""
    with Store.open(database) as store:
        model, q, ids = ExecutionModelManager(store), store.queries(), Ids(wall_clock)
        [run] = model.recover_crashed_runs()
        [mutation] = reads.unsettled_mutations(q, WORKFLOW)
        [event] = reads.events(q, WORKFLOW, "customer.new")
        print(f"run        {run.status}")
        print(f"mutation   {mutation.connector}.{mutation.method} {mutation.params} is {mutation.status}")
        print(f"event      {event.title!r} is {event.status}")
        try:
            model.create_run(ids.new("run"), model.create_session(ids.new("ses"), WORKFLOW).id, "greet")
        except Rejected as refusal:
            print(f"new run    refused: {refusal}")

        print("\nA person looks into the outbox, and says: it happened.\n")
        model.apply_mutation(mutation.id, '{"messageId":1}', Resolver.USER_ASSERT_APPLIED, by="you")
        session = reads.open_session(q, WORKFLOW)
        assert session, "the refused run left its session open"
        retry = model.create_retry_run(ids.new("run"), run.id, session.id)
        model.commit_consumer(retry.id)
        model.finish_session(session.id)
        [event] = reads.events(q, WORKFLOW, "customer.new")
        print(f"event      {event.title!r} is {event.status}")
        print(f"emails     {len(outbox.read_text().splitlines())}")
        print("\nWhat happened, from the journal:")
        for entry in reads.journal(q, workflow_id=WORKFLOW, after=5):
            print(f"  {entry.operation:<26} {entry.changed}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database, outbox = Path(folder, "keep.db"), Path(folder, "outbox.txt")
        child = subprocess.run([sys.executable, __file__, str(database), str(outbox)], check=False)
        print(
            f"The first process sent {len(outbox.read_text().splitlines())} email and died (exit {child.returncode}).\n"
        )
        start_again(database, outbox)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        send_and_die(Path(sys.argv[1]), Path(sys.argv[2]))
    main()
