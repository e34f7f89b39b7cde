"""A process to be killed: it works on a file, and says what was acknowledged, line by line, after each commit.

python -m tests.crash.child FILE LEDGER
"""

import os
import sys
from pathlib import Path
from typing import Final

from keep_storage import Store, reads
from keep_storage.model import JournalEntry
from tests.crash.driver import NO_LIMIT, Driver
from tests.crash.life import recover
from tests.crash.scenarios import Consumer, Scenario, Trouble
from tests.crash.services import Call, Services

SCENARIOS: Final = {
    "wf_mail": Scenario(
        "many mails",
        mail=tuple(f"m{number:02d}" for number in range(16)),
        announce=Consumer(next=Trouble.TRANSIENT),
    ),
    "wf_jobs": Scenario("many items", mail=(), items=tuple(f"i{number:02d}" for number in range(16))),
}


class RecordedServices(Services):
    """An outside world that outlives the process, because it is in a file of its own."""

    def __init__(self, ledger: Path) -> None:
        super().__init__()
        self._ledger = ledger
        lines = ledger.read_text("utf-8").splitlines() if ledger.exists() else []
        for line in lines:
            key, target = line.split()
            super().record(Call(key, target, happened=True))

    def record(self, call: Call) -> None:
        super().record(call)
        assert call.happened, "in these scenarios every call goes well"
        with self._ledger.open("a", encoding="utf-8") as file:
            file.write(f"{call.key} {call.target}\n")


def drivers(ledger: Path) -> list[Driver]:
    outside = RecordedServices(ledger)
    return [Driver(scenario, outside, workflow_id) for workflow_id, scenario in SCENARIOS.items()]


def line(entry: JournalEntry) -> str:
    return f"{entry.seq} {entry.operation} {entry.workflow_id} {entry.run_id}"


def main(path: Path, ledger: Path) -> None:
    with Store.open(path) as store:
        q = store.queries()
        said = len(reads.journal(q, limit=NO_LIMIT))
        recover(store)
        cast = drivers(ledger)
        while True:
            entries = reads.journal(q, after=said, limit=NO_LIMIT)
            said += len(entries)
            # One write: whoever reads it sees all of it, even if this process is killed the moment after.
            os.write(sys.stdout.fileno(), "".join(f"{line(entry)}\n" for entry in entries).encode())
            found = [driver.next_operation(q) for driver in cast]
            batch = [operation for operation in found if operation]
            if not batch:
                return
            for outcome in store.commit(batch):
                outcome.unwrap()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
