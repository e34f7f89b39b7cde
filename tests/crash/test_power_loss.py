"""The power fails, the disk fills up, a sync fails: what was acknowledged stays, what was refused never comes back.

On a simulated disk that forgets, reorders and tears what was not synced. Several scenarios go on side by side, so
that each commit is a batch of operations: it is there as a whole, or not at all.
"""

import hashlib
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import apsw
import msgspec
import pytest

from keep_storage import StorageLost, StorageUnavailable, Store
from keep_storage import operations as ops
from keep_storage.model import JournalEntry
from keep_storage.sqlite import SqliteDatabase
from tests.crash.disks import RealDisk, TroubledDisk, settings
from tests.crash.show import RECOVERY, Batch, Show, problems
from tests.storage.disk import Fault, Survival
from tests.storage.world import WORKFLOW, CountingClock, World

NEVER = 1_000_000
OFTEN = 60
"""A checkpoint after so many pages in the log: every few batches."""

FRAME_BYTES = 24 + 2_048
"""One page in the log."""
FRAMES_OF_A_TOGGLE = 3
"""Pausing a workflow changes its row, an index of workflows, and the journal."""

Files = Mapping[str, bytes]
Journal = list[JournalEntry]

powersafe_or_not = pytest.mark.parametrize("powersafe", [True, False], ids=["powersafe", "padded"])


@pytest.fixture
def checkpoint_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def use(pages: int) -> None:
        monkeypatch.setattr(apsw, "connection_hooks", [settings(pages)])

    return use


@pytest.fixture(autouse=True)
def never_checkpoint(checkpoint_after: Callable[[int], None]) -> None:
    """Unless a test says otherwise."""
    checkpoint_after(NEVER)


def ways_to_lose_power() -> Iterator[tuple[Survival, int]]:
    """What becomes of the unsynced writes, and the seeds that decide which."""
    yield from ((Survival.DROPPED, 0), (Survival.KEPT, 0))
    yield from ((mode, seed) for mode in (Survival.SHUFFLED, Survival.TORN) for seed in range(3))


class Loss:
    """What is on the platter when the power fails now, and all that a test must know about this moment."""

    def __init__(self, show: Show, files: Files, story: str) -> None:
        self.files = files
        self.acknowledged = show.batches
        self.outsides = show.outsides()
        self.now = show.clock.now
        self.story = f"power lost at sync {show.disk.syncs + 1}: {story}"


def lose_power_at_every_sync(show: Show) -> list[Loss]:
    """The list grows as the show goes on: different images only."""
    found: list[Loss] = []
    seen: set[tuple[int, bytes]] = set()

    def before_sync() -> None:
        for mode, seed in ways_to_lose_power():
            files = show.disk.survivors(random.Random(f"{show.disk.syncs}/{seed}"), mode)
            image = hashlib.sha256(b"".join(files[name] for name in sorted(files))).digest()
            if (show.batches, image) not in seen:
                seen.add((show.batches, image))
                found.append(Loss(show, files, f"of the unsynced writes {mode.value} (seed {seed})"))

    show.disk.before_sync = before_sync
    return found


@powersafe_or_not
def test_what_was_acknowledged_survives_a_power_loss_at_every_sync(
    powersafe: bool, checkpoint_after: Callable[[int], None]
) -> None:
    checkpoint_after(OFTEN)
    show = Show(powersafe=powersafe)
    losses = lose_power_at_every_sync(show)
    with show:
        journals, rows = [show.journal()], [show.rows()]
        while batch := show.next_batch():
            show.commit(batch)
            journals.append(show.journal())
            rows.append(show.rows())
        endings = show.endings()
        show.store.close()
    # After the last one there is a sync only if its commit left something in the log for the end.
    assert {loss.acknowledged for loss in losses} >= set(range(show.batches)), "the power was lost in every batch"

    finished: set[object] = set()
    for loss in losses:
        with Show(loss.files, loss.outsides, loss.now, powersafe=powersafe) as after:
            found = after.journal()
            # Everything that was acknowledged, and of the batch that was not, everything or nothing.
            assert found in journals[loss.acknowledged : loss.acknowledged + 2], loss.story
            batches = journals.index(found)
            assert problems(loss.files) == [], loss.story
            moment = (batches, *(outside.state() for outside in loss.outsides))
            if moment in finished:
                continue  # from the same rows, and in the same world, the same follows
            finished.add(moment)
            assert after.rows() == rows[batches], loss.story
            after.check()
            after.recover()
            if batches % 3 == 0:
                after.play()
                assert after.endings() == endings, loss.story


def test_a_store_says_so_when_the_power_is_gone(checkpoint_after: Callable[[int], None]) -> None:
    checkpoint_after(OFTEN)
    with Show() as undisturbed:
        opening = undisturbed.disk.syncs
        undisturbed.play()
        syncs = undisturbed.disk.syncs
    for sync in range(1, opening + 1):
        show = Show()
        show.disk.lose_power_at(sync)
        with pytest.raises(StorageUnavailable), show:
            pass
    for sync in range(opening + 1, syncs + 1, 3):
        with Show() as show:
            show.disk.lose_power_at(sync)
            with pytest.raises(StorageUnavailable):
                show.play()
            with pytest.raises(StorageUnavailable):
                show.commit(RECOVERY)


def attempt(show: Show, batch: Batch) -> StorageUnavailable | None:
    """Commit, or say why not."""
    try:
        show.commit(batch)
    except StorageUnavailable as error:
        return error
    return None


def afterlives(show: Show, ways: Iterable[tuple[Survival, int]] | None = None) -> dict[str, Files]:
    """What the next process may find, if this one is killed now or the power fails now: different images only."""
    found: dict[str, Files] = {"the process was killed": show.disk.contents()}
    for mode, seed in ways or ways_to_lose_power():
        files = show.disk.survivors(random.Random(seed), mode)
        if files not in found.values():
            found[f"power was lost, and of the unsynced writes {mode.value} (seed {seed})"] = files
    return found


def journal_in(files: Files, show: Show) -> Journal:
    """What a new process finds."""
    with show.reopened(files) as after:
        return after.journal()


def assert_nothing_happened(
    show: Show, before: Journal, story: str, ways: Iterable[tuple[Survival, int]] | None = None
) -> None:
    assert show.journal() == before, story
    for how, files in afterlives(show, ways).items():
        assert journal_in(files, show) == before, f"{story}; then {how}"


@powersafe_or_not
def test_nothing_of_a_batch_happened_when_the_disk_was_full(powersafe: bool) -> None:
    rng, ways, refused = random.Random(7), list(ways_to_lose_power()), 0
    with Show(powersafe=powersafe) as show:
        while batch := show.next_batch():
            before = show.journal()
            rooms = sorted({*(rng.randrange(120_000) for _ in range(8)), 0, FRAME_BYTES - 1, FRAME_BYTES})
            for room in rooms:
                show.disk.full_after(room)
                error = attempt(show, batch)
                if error is None:
                    break
                story = f"batch {show.batches + 1}, room for {room} bytes"
                assert "full" in str(error), story
                assert show.journal() == before, story
                if not isinstance(error, StorageLost):
                    assert_nothing_happened(show, before, story, rng.sample(ways, 1))
                refused += 1
            show.disk.full_after(None)
            if show.journal() == before:
                nothing_is_left_of_it(show, before)
                show.commit(batch)  # there is room again, and the same store works on
            show.check()
    assert refused > 100, "the disk was full at many bytes"


def nothing_is_left_of_it(show: Show, before: Journal) -> None:
    """The first commit after the trouble, even one that changes nothing, makes sure of that."""
    show.store.commit([])
    assert_nothing_happened(show, before, f"batch {show.batches + 1}, after the trouble")


def test_nothing_of_a_batch_happened_when_the_disk_was_full_and_the_log_was_written_over(
    checkpoint_after: Callable[[int], None],
) -> None:
    """After a checkpoint the log is written over from its beginning. A frame whose end does not fit is whole all the
    same if the old log ended in the same way there; and a disk that copies on write can be full then.
    """
    checkpoint_after(24)
    toggles: list[Batch] = [[ops.PauseWorkflow(WORKFLOW)], [ops.ResumeWorkflow(WORKFLOW)]]
    with Show() as show:
        World(show.store)
        for number in range(30):
            batch, files, before = toggles[number % 2], show.disk.contents(), show.journal()
            for missing in (1_024, 41, 1):
                with show.reopened(files) as trial:
                    trial.disk.full_after(FRAMES_OF_A_TOGGLE * FRAME_BYTES - missing)
                    if error := attempt(trial, batch):
                        trial.disk.full_after(None)
                        if isinstance(error, StorageLost):
                            trial.store.commit([])
                        assert_nothing_happened(trial, before, f"commit {number}, {missing} bytes too few")
            show.commit(batch)


@powersafe_or_not
def test_a_commit_whose_sync_failed_is_void_once_a_later_write_has_succeeded(
    powersafe: bool, checkpoint_after: Callable[[int], None]
) -> None:
    checkpoint_after(OFTEN)
    with Show(powersafe=powersafe) as show:
        while batch := show.next_batch():
            before = show.journal()
            show.disk.fail_some_syncs(1)
            error = attempt(show, batch)
            story = f"batch {show.batches + 1}"
            assert error, story
            assert not isinstance(error, StorageLost), story
            assert show.disk.fail is Fault.SYNC
            assert_nothing_happened(show, before, story)
            show.commit(batch)
            show.check()


def timeless(journal: Journal) -> Journal:
    return [msgspec.structs.replace(entry, at=0) for entry in journal]


@powersafe_or_not
def test_a_store_is_lost_when_no_later_write_can_tell_what_became_of_a_commit(powersafe: bool) -> None:
    with Show(powersafe=powersafe) as show:
        while batch := show.next_batch():
            before, files = show.journal(), show.disk.contents()
            show.commit(batch)
            with show.reopened(files) as lost:
                lost.disk.fail_some_syncs(NEVER)
                assert isinstance(attempt(lost, batch), StorageLost)
                assert isinstance(attempt(lost, batch), StorageLost), "nothing happens before that is certain"
                lost.disk.fail_some_syncs(0)
                for how, left in afterlives(lost).items():
                    found = timeless(journal_in(left, lost))
                    # As before, or with the whole batch.
                    assert found in (timeless(before), timeless(show.journal())), f"batch {show.batches}; then {how}"
                nothing_is_left_of_it(lost, before)
                assert attempt(lost, batch) is None, "the same store works on"


def test_a_lost_store_can_be_opened_again_and_carries_on() -> None:
    with Show() as undisturbed:
        undisturbed.play()
        endings = undisturbed.endings()
    for batches in range(5, 25, 5):
        with Show() as show:
            while show.batches < batches:
                show.commit(show.next_batch())
            show.disk.fail_some_syncs(NEVER)
            assert isinstance(attempt(show, show.next_batch()), StorageLost)
            show.disk.fail_some_syncs(0)
            with show.reopened(show.disk.contents()) as after:
                after.recover()
                after.play()
                assert after.endings() == endings, f"lost at batch {batches + 1}"


def test_a_disk_that_turns_read_only_refuses_the_batch_and_nothing_of_it_happened() -> None:
    with Show() as show:
        for _ in range(10):
            show.commit(show.next_batch())
        before, batch = show.journal(), show.next_batch()
        show.disk.read_only = True
        error = attempt(show, batch)
        assert error
        assert "read-only" in str(error)
        assert_nothing_happened(show, before, "read-only")


def test_a_read_only_disk_is_refused_in_plain_words() -> None:
    with Show() as show:
        show.commit(show.next_batch())
        files = show.disk.contents()
        for found in (files, {}):
            after = show.reopened(found)
            after.disk.read_only = True
            with pytest.raises(StorageUnavailable, match=r"read-only|cannot be opened"), after:
                pass
            assert after.disk.contents() == found


def test_a_file_on_a_disk_without_shared_memory_can_be_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "connection_hooks", [])  # as in production: `exclusive` alone must do
    with Show() as show:
        show.commit(show.next_batch())
        assert journal_in(show.disk.contents(), show) == show.journal()


@pytest.fixture
def real_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[RealDisk]:
    monkeypatch.setattr(apsw, "connection_hooks", [])
    disk = RealDisk("real")
    yield disk
    disk.unregister()


def test_what_a_lost_store_reads_when_it_is_opened_again_is_what_stays(real_disk: RealDisk, tmp_path: Path) -> None:
    """A reader keeps the index of the log in shared memory alive, and the lost commit is not in that index."""
    clock, path = CountingClock(), tmp_path / "keep.db"

    def opened() -> World:
        return World(Store(SqliteDatabase.open(str(path), now=clock(), vfs=real_disk.vfs_name), clock), deploy=False)

    world = opened()
    world.deploy()
    reader = world.store.reader()
    assert reader.one("workflow_by_id", {"id": WORKFLOW})
    real_disk.dies_at_next_sync = True
    with pytest.raises(StorageLost):
        world.publish("m1")
    real_disk.mend()
    world.store.close()

    world = opened()
    read = world.states()
    left = tmp_path / "left"
    left.mkdir()
    for name in ("keep.db", "keep.db-wal"):  # what SIGKILL leaves behind
        shutil.copy(tmp_path / name, left / name)
    world.store.close()
    reader.close()
    with Store.open(left / "keep.db", clock) as store:
        assert World(store, deploy=False).states() == read


@pytest.mark.parametrize("seed", range(4))
def test_a_refused_batch_never_comes_back_whatever_fails_in_whatever_order(seed: int) -> None:
    rng = random.Random(seed)
    with Show() as undisturbed:
        undisturbed.play()
        endings = undisturbed.endings()
    with ExitStack() as machines:
        show = machines.enter_context(Show())
        while batch := show.next_batch():
            before = show.journal()
            torment(show.disk, rng)
            error = attempt(show, batch)
            while error and not isinstance(error, StorageLost):
                assert_nothing_happened(show, before, f"seed {seed}, batch {show.batches + 1}: {error}")
                torment(show.disk, rng)
                error = attempt(show, batch)
            relieve(show.disk)
            if error:
                left = rng.choice(list(afterlives(show).values()))
                show = machines.enter_context(show.reopened(left))
                assert show.journal()[: len(before)] == before, f"seed {seed}"
                show.recover()
            show.check()
        assert show.endings() == endings, f"seed {seed}"


def torment(disk: TroubledDisk, rng: random.Random) -> None:
    """Something is wrong with the disk from now on, or nothing is."""
    relieve(disk)
    if rng.random() < 0.4:
        disk.full_after(rng.randrange(100_000))
    if rng.random() < 0.3:
        disk.fail_some_syncs(rng.choice((1, 1, 2)), after=rng.choice((0, 0, 1)))
    disk.read_only = rng.random() < 0.05


def relieve(disk: TroubledDisk) -> None:
    disk.full_after(None)
    disk.fail_some_syncs(0)
    disk.read_only = False
