"""A person outside, who hears of questions by notices and answers over the control socket, whoever is killed meanwhile.

Says the same to a question however often that takes, and writes everything down before it is said.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from keep_actors.api import commands
from keep_actors.api.command import Command
from keep_actors.control.client import CommandRefused, ControlClient, Lost
from keep_actors.control.place import place_of
from keep_actors.notices import Notice
from keep_storage import reads
from keep_storage.errors import Reason
from keep_storage.model import NoticeKind, Says
from keep_storage.sqlite import open_reader
from keep_storage.transaction import Queries
from tests.torture.records import Answers, Notices, Said
from tests.torture.stories import answer_to

BY: Final = "eve"
ANSWER_S: Final = 5
NOT_NOW: Final = frozenset({Reason.RUN_STILL_ACTIVE, Reason.WORKFLOW_STATUS_REFUSED})
"""Refusals that pass: the same answer is given again, until the matter is settled."""


class Person:
    """Somebody with a phone and a shell."""

    def __init__(self, folder: Path, notices: Notices, rng: random.Random) -> None:
        self._database = folder / "keep.db"
        self._notices = notices
        self._answers = Answers(folder / "answers.txt")
        self._rng = rng
        self._settled: set[str] = set()
        """Matters that need nobody any more."""
        self._seen = 0
        self._open: dict[str, Notice] = {}
        self._over = threading.Event()
        self.problems: list[str] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Answer questions, for the block."""
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _work(self) -> None:
        try:
            while not self._over.wait(self._rng.uniform(0.02, 0.2)):
                self._hear()
                for matter, notice in list(self._open.items()):
                    if self._answer(notice):
                        del self._open[matter]
        except Exception as error:  # said in the end: nobody waits for this thread
            self.problems.append(f"the person outside failed: {error!r}")

    def _hear(self) -> None:
        news = self._notices.told[self._seen :]
        self._seen += len(news)
        for notice in news:
            if notice.says is Says.SETTLED:
                self._settled.add(notice.matter)
                self._open.pop(notice.matter, None)
            elif notice.kind in (NoticeKind.APPROVAL, NoticeKind.REPAIR) and notice.matter not in self._settled:
                self._open[notice.matter] = notice

    def _answer(self, notice: Notice) -> bool:
        """Whether that is done with: taken, or refused because something else came first."""
        with closing(open_reader(str(self._database))) as reader, reader.snapshot():
            is_repair = notice.kind is NoticeKind.REPAIR
            said = self._on_repair(reader, notice) if is_repair else self._on_approval(reader, notice.about)
        if not isinstance(said, Said):
            return self._ask(said) is not None
        self._answers.note(said)
        came = self._ask(_request(said))
        if came is not None:
            self._answers.note(said._replace(word=came))
        return came is not None

    def _on_approval(self, q: Queries, approval_id: str) -> Said:
        approval = reads.approval(q, approval_id)
        assert approval, f"told of the approval {approval_id}, which is not in the file"
        mutation = reads.mutation(q, approval.mutation_id)
        assert mutation, "an approval is about a call"
        label: str = msgspec.json.decode(mutation.params)["event"]
        before = [each for each in self._answers.said if each.label == label]
        for each in before:
            if each.approval_id == approval_id:
                return each._replace(word="say")
        answer = answer_to(label, sent_back=any(each.answer == "retry" for each in before))
        return Said("say", answer, approval_id, mutation.idempotency_key, label)

    def _on_repair(self, q: Queries, notice: Notice) -> Command[Any]:
        """Mostly yes. A no names no version: it is said only while this one is there to be refused."""
        task = reads.open_task(q, notice.workflow_id)
        held = reads.version(q, task.held_version_id) if task and task.held_version_id else None
        if held and f"{held.major}.{held.minor}" == notice.about and self._rng.random() < 0.3:
            return commands.RefuseRepair(workflow=notice.workflow_id, by=BY, why="not like this")
        return commands.AcceptRepair(workflow=notice.workflow_id, version=notice.about, by=BY)

    def _ask(self, request: Command[Any]) -> Literal["heard", "refused"] | None:
        """What came of it. None: nobody knows, so it is asked again."""
        try:
            client = ControlClient.connect(place_of(self._database), self._database)
            if client is None:
                return None
            with client:
                client.ask(request, ANSWER_S)
        except (Lost, OSError):
            return None
        except CommandRefused as refused:
            if refused.error.kind not in ("rejected", "unavailable", "unknown"):
                self.problems.append(f"{request}: {refused.error}")
            is_final = refused.error.kind == "rejected" and refused.error.reason not in NOT_NOW
            return "refused" if is_final else None
        return "heard"


def _request(said: Said) -> Command[Any]:
    if said.answer == "approve":
        return commands.ApproveCall(approval_id=said.approval_id, by=BY)
    return commands.RejectCall(approval_id=said.approval_id, by=BY, why="no", retry=said.answer == "retry")
