"""A doubt, with a crash between every two commits on its way: uncertain, looked into, paused, found, gone on.

Whenever the process ends, and whoever finds out in the end, the effect exists once, and the event behind it is never
pending again while it may exist.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from keep_actors import Connector, MutationCall, Policy, mutation
from keep_actors.api.verdicts import PersonVerdict
from keep_actors.connectors import Applied, NotApplied, Retry
from keep_actors.kernel import VirtualTime
from keep_actors.policy import Backoff
from keep_storage import invariants
from keep_storage.model import MutationStatus
from tests.crash.life import Moment
from tests.runtime.test_repair_crashes import machine
from tests.runtime.world import DAY, MINUTE, START, TimedBox, left_in, script, world

pytestmark = pytest.mark.anyio

Mode = Literal["pause", "park"]
MODES: Sequence[Mode] = ("pause", "park")

SCRIPT = script(
    mutate="await c.bank.pay({ order: prepared.data.id });",
    next_='if (prepared.data) await c.publish("out", { messageId: prepared.data.id, title: result.status });',
)


class Bank(Connector):
    """Its answers get lost. Whether a payment was made can be found out at the third look, or never."""

    name = "bank"

    def __init__(self, payments: Sequence[tuple[str, str]] = (), *, blind: bool, loses: bool) -> None:
        self.payments = list(payments)
        self._blind_checks = 10**6 if blind else 2
        self._loses = loses

    @mutation
    async def pay(self, order: str, call: MutationCall) -> str:
        """Pay, perhaps, and lose the answer."""
        if not self._loses:
            self.payments.append((call.idempotency_key, order))
        # Once. What is tried again after it was known not to have happened, happens.
        self._loses = False
        raise ConnectionError("the line is dead")

    @pay.reconcile
    async def find(self, call: MutationCall) -> Applied | NotApplied | Retry:
        self._blind_checks -= 1
        if self._blind_checks >= 0:
            return Retry("the index lags")
        made = call.idempotency_key in [key for key, _ in self.payments]
        return Applied(call.params["order"]) if made else NotApplied()


@dataclass(frozen=True)
class Picture:
    """What a process that is killed now leaves behind, in its file and outside."""

    words: str
    files: dict[str, bytes]
    payments: list[tuple[str, str]]

    def restore(self, folder: Path) -> Path:
        folder.mkdir()
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder / "keep.db"


def policy(mode: Mode) -> Policy:
    return Policy(on_unknown=mode, reconcile=Backoff(first_ms=MINUTE, cap_ms=MINUTE, attempts_max=4, jitter=0))


async def story(box: TimedBox, bank: Bank) -> None:
    """An order is paid; who cannot find out is told by a person who can look."""
    if not await box.keep.workflows():
        await box.keep.deploy(SCRIPT, grants="all")
    await box.publish("flow", "in", "one")
    while True:
        for _ in range(6):
            await box.advance(2 * MINUTE)
        questions = await box.keep.unknowns()
        for question in questions:
            assert question.status is MutationStatus.INDETERMINATE, "after so many checks a person is asked"
            made = bool(bank.payments)
            verdict: PersonVerdict = "happened" if made else "did_not_happen"
            await box.keep.resolve(question.mutation_id, verdict, by="ann", result="one" if made else None)
        if not questions:
            return


async def pictures_of(path: Path, mode: Mode, bank: Bank, time: VirtualTime) -> list[Picture]:
    """Tell the story in a life that is not disturbed, with a picture around every commit."""
    pictures: list[Picture] = []

    def watch(moment: Moment, commit: int) -> None:
        files = {name: path.with_name(name).read_bytes() for name in ("keep.db", "keep.db-wal")}
        pictures.append(Picture(f"{moment.value} commit {commit}", files, list(bank.payments)))

    async with machine(bank, path=path, policy=policy(mode), time=time) as box:
        box.files.watch = watch
        await story(box, bank)
        await assert_good(box, bank, "undisturbed")
    return pictures


async def assert_good(box: TimedBox, bank: Bank, words: str) -> None:
    counts = Counter(order for _, order in bank.payments)
    assert counts == {"one": 1}, words
    assert await box.statuses("flow", "in") == {"one": "consumed"}, words
    assert [each.title for each in await box.keep.events("flow", "out")] == ["applied"], words
    assert await box.keep.attention() == [], words
    applied = [each for each in await box.keep.outputs("flow") if each.status is MutationStatus.APPLIED]
    assert len(applied) == 1, words


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("blind", [False, True], ids=["found by the connector", "told by a person"])
@pytest.mark.parametrize("loses", [False, True], ids=["the answer is lost", "the request is lost"])
async def test_whenever_the_process_is_killed_the_payment_is_made_once(
    mode: Mode, blind: bool, loses: bool, tmp_path: Path, anyio_backend_name: str
) -> None:
    bank = Bank(blind=blind, loses=loses)
    pictures = await pictures_of(tmp_path / "keep.db", mode, bank, VirtualTime(START))
    assert len(pictures) >= 16, "the doubt, the checks, the pause, the outcome and the rest are a commit each"
    # What is in the file does not depend on the event loop: all of them on one, and every fourth on the other.
    for number, picture in enumerate(pictures[:: 1 if anyio_backend_name == "asyncio" else 4]):
        path = picture.restore(tmp_path / str(number))
        with left_in(path) as q:
            assert invariants.check(q, deep=True) == [], picture.words
        again = Bank(picture.payments, blind=blind, loses=False)
        async with world(again, path=path, policy=policy(mode), time=VirtualTime(START + DAY)) as box:
            await box.settle()
            if picture.payments and await box.keep.workflows():
                assert (await box.statuses("flow", "in"))["one"] in ("reserved", "consumed"), picture.words
            await story(box, again)
            await assert_good(box, again, picture.words)
        with left_in(path) as q:
            assert invariants.check(q, deep=True) == [], picture.words
