"""A doubt, with a crash between every two commits on its way: uncertain, looked into, paused, found, gone on.

Whenever the process ends, and whoever finds out in the end, the effect exists once, and the event behind it is never
pending again while it may exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from keep_actors import Policy
from keep_actors.api.verdicts import PersonVerdict
from keep_actors.kernel import VirtualTime
from keep_actors.policy import Backoff
from keep_actors.testing import Asked, Effect, Fake, cannot_tell, lose_the_answer, lose_the_request, ok
from keep_storage import invariants
from keep_storage.model import MutationStatus
from tests.bank import fake_bank, payees
from tests.crash.life import Moment
from tests.runtime.test_repair_crashes import machine
from tests.runtime.world import DAY, MINUTE, START, TimedBox, left_in, script, world

pytestmark = pytest.mark.anyio

Mode = Literal["pause", "park"]
MODES: Sequence[Mode] = ("pause", "park")

SCRIPT = script(
    mutate="await c.bank.pay({ to: prepared.data.id });",
    next_='if (prepared.data) await c.publish("out", { messageId: prepared.data.id, title: result.status });',
)


def forgetful_bank(payments: Sequence[Effect] = (), *, blind: bool, loses: bool = False) -> Fake:
    """Its answers get lost, once the request. A payment can be found at the third look, or never."""
    bank = fake_bank()
    for payment in payments:
        bank.world.happen(payment)
        bank.world.asked.append(Asked(payment.method, payment.params, payment.key))
    if loses:
        bank.plan("pay", lose_the_request)
    if not blind:
        bank.plan("pay reconcile", cannot_tell, cannot_tell, *[ok] * 10)
    bank.otherwise = {"pay": lose_the_answer, "pay reconcile": cannot_tell}.__getitem__
    return bank


@dataclass(frozen=True)
class Picture:
    """What a process that is killed now leaves behind, in its file and outside."""

    words: str
    files: dict[str, bytes]
    payments: list[Effect]

    def restore(self, folder: Path) -> Path:
        folder.mkdir()
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder / "keep.db"


def policy(mode: Mode) -> Policy:
    return Policy(on_unknown=mode, reconcile=Backoff(first_ms=MINUTE, cap_ms=MINUTE, attempts_max=4, jitter=0))


async def story(box: TimedBox, bank: Fake) -> None:
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
            made = bool(bank.world.effects)
            verdict: PersonVerdict = "happened" if made else "did_not_happen"
            await box.keep.resolve(question.mutation_id, verdict, by="ann", result="one" if made else None)
        if not questions:
            return


async def pictures_of(path: Path, mode: Mode, bank: Fake, time: VirtualTime) -> list[Picture]:
    """Tell the story in a life that is not disturbed, with a picture around every commit."""
    pictures: list[Picture] = []

    def watch(moment: Moment, commit: int) -> None:
        files = {name: path.with_name(name).read_bytes() for name in ("keep.db", "keep.db-wal")}
        pictures.append(Picture(f"{moment.value} commit {commit}", files, list(bank.world.effects)))

    async with machine(bank, path=path, policy=policy(mode), time=time) as box:
        box.files.watch = watch
        await story(box, bank)
        await assert_good(box, bank, "undisturbed")
    return pictures


async def assert_good(box: TimedBox, bank: Fake, words: str) -> None:
    assert payees(bank) == ["one"], words
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
    bank = forgetful_bank(blind=blind, loses=loses)
    pictures = await pictures_of(tmp_path / "keep.db", mode, bank, VirtualTime(START))
    assert len(pictures) >= 16, "the doubt, the checks, the pause, the outcome and the rest are a commit each"
    # What is in the file does not depend on the event loop: all of them on one, and every fourth on the other.
    for number, picture in enumerate(pictures[:: 1 if anyio_backend_name == "asyncio" else 4]):
        path = picture.restore(tmp_path / str(number))
        with left_in(path) as q:
            assert invariants.check(q, deep=True) == [], picture.words
        again = forgetful_bank(picture.payments, blind=blind)
        async with world(again, path=path, policy=policy(mode), time=VirtualTime(START + DAY)) as box:
            await box.settle()
            if picture.payments and await box.keep.workflows():
                assert (await box.statuses("flow", "in"))["one"] in ("reserved", "consumed"), picture.words
            await story(box, again)
            await assert_good(box, again, picture.words)
        with left_in(path) as q:
            assert invariants.check(q, deep=True) == [], picture.words
