"""A whole runtime killed with SIGKILL at random moments, and its sandbox under it: nothing is done twice or lost."""

import logging
import os
import random
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

import keep_actors
from keep_actors import Keep, Policy
from keep_actors.policy import Backoff
from tests.torture.audit import Audit
from tests.torture.outside import Outbox
from tests.torture.records import Effects, Halts, Published
from tests.torture.stories import script
from tests.torture.torture import Torture, children, kill

log = logging.getLogger(__name__)

KILLS = 5
KILLS_MAX = 20
"""On a machine so slow that no life came to do much."""
NEEDED = ("ask-0/2", "item-0/1", "mend-0/1")
"""Orders that are refused, take two calls and have a script repaired."""
COUNTED = (
    "kills of the process",
    "events acknowledged",
    "items done",
    "items skipped",
    "approvals asked",
    "approvals approved",
    "approvals rejected",
    "notices about approval",
    "repairs",
    "times halted by a person",
)


@pytest.mark.parametrize("seed", [1])
def test_a_runtime_that_is_killed_again_and_again_does_nothing_twice_and_loses_nothing(
    seed: int, tmp_path: Path
) -> None:
    def wanted(kills: int) -> bool:
        acknowledged = Published(tmp_path / "published.txt").acknowledged
        is_enough = set(NEEDED) <= set(acknowledged) and Halts(tmp_path / "halts.txt").count("halted")
        return kills < KILLS or (kills < KILLS_MAX and not is_enough)

    problems, figures = Torture(tmp_path, seed, log.info).go_on_while(wanted)
    log.info("seed %d: %s", seed, figures)
    assert problems == [], f"seed {seed}"
    assert figures["effects more than once"] == 0 < figures["effects outside"], f"seed {seed}"
    assert {name for name in COUNTED if not figures.get(name)} == set(), f"seed {seed}"


def test_an_audit_finds_what_was_lost_repeated_out_of_order_or_is_untrue(tmp_path: Path) -> None:
    async def two_events() -> None:
        outside, published = Effects(tmp_path / "outside.txt"), Published(tmp_path / "published.txt")
        async with keep_actors.open(tmp_path / "keep.db", connectors=[Outbox(outside)], sandbox="thread") as keep:
            await publish(keep, published, "send-0", 2)
            await keep.wait_idle()

    anyio.run(two_events)
    assert (Audit(tmp_path).wrong(), Audit(tmp_path).unfinished()) == ([], [])
    records = {name: (tmp_path / name).read_text() for name in ("outside.txt", "published.txt")}
    first, second = records["outside.txt"].splitlines(keepends=True)
    found = {}
    for what, name, text in (
        ("repeated", "outside.txt", first + second + second),
        ("out of order", "outside.txt", second + first),
        ("untrue", "outside.txt", first),
        ("unknown", "outside.txt", f"{first}{second}send-0/2 mut_x\n"),
        ("lost", "published.txt", f"{records['published.txt']}wanted send-0/2\nacknowledged send-0/2\n"),
        ("unwanted", "published.txt", records["published.txt"].partition("wanted send-0/1")[0]),
    ):
        (tmp_path / name).write_text(text)
        found[what] = Audit(tmp_path).wrong()
        (tmp_path / name).write_text(records[name])
    assert found == {
        "repeated": ["send-0/1: done 2 times"],
        "out of order": ["send-0/0: done after number 1"],
        "untrue": ['{"event":"send-0/1"}: the ledger says applied, and nothing was done'],
        "unknown": ["send-0/2: done, and the ledger has no call mut_x"],
        "lost": ["send-0/2: acknowledged, and lost"],
        "unwanted": ["send-0/1: nobody published it"],
    }


# The sandbox alone.

EVENTS = 6
IN_DANGER = tuple(f"{kind}-{number}" for number in range(6) for kind in ("post", "send"))
WORKER_KILLS = 100
ZYGOTE_KILLS = 3
"""Fewer than the pool accepts in so short a time."""
MOMENT_S = 0.03
"""About as long as a run takes: the kill strikes anywhere in it."""
PATIENT = Policy(retry=Backoff(first_ms=10, cap_ms=50, attempts_max=1_000))


@pytest.mark.anyio
@pytest.mark.parametrize("seed", [1])
async def test_a_sandbox_that_is_killed_again_and_again_delays_runs_and_nothing_else(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    others = set(children(os.getpid()))
    outside, published = Effects(tmp_path / "outside.txt"), Published(tmp_path / "published.txt")
    async with (
        keep_actors.open(tmp_path / "keep.db", connectors=[Outbox(outside)], policy=PATIENT) as keep,
        anyio.create_task_group() as tasks,
    ):
        for name in IN_DANGER:
            await publish(keep, published, name, EVENTS, start=False)
        tasks.start_soon(kill_at_random, rng, others)
        for name in IN_DANGER:
            await keep.resume(name)
        await until_done(keep)
        tasks.cancel_scope.cancel()
    audit = Audit(tmp_path)
    log.info("seed %d: %s", seed, audit.figures())
    assert (audit.wrong(), audit.unfinished()) == ([], []), f"seed {seed}"
    assert {name for name in audit.figures() if name.startswith("runs")} == {"runs committed", "runs paused:transient"}


@pytest.mark.anyio
async def test_a_zygote_that_is_killed_as_it_starts_is_replaced_like_any_other(tmp_path: Path) -> None:
    outside, published = Effects(tmp_path / "outside.txt"), Published(tmp_path / "published.txt")
    others = set(children(os.getpid()))
    async with keep_actors.open(tmp_path / "keep.db", connectors=[Outbox(outside)]) as keep:
        [first] = set(children(os.getpid())) - others
        kill(first)
        # As soon as it is there: until it has said so, there is no process to hear of.
        while not (second := set(children(os.getpid())) - {first} - others):
            await checkpoint()
        kill(second.pop())
        await publish(keep, published, "send-1", EVENTS)
        await keep.wait_idle()
        assert len(await keep.events("send-1", "done")) == EVENTS


async def publish(keep: Keep, published: Published, name: str, events: int, *, start: bool = True) -> None:
    """Deploy a workflow and give it so many events."""
    await keep.deploy(script(name), grants="declared", start=start)
    for number in range(events):
        event = f"{name}/{number}"
        published.note("wanted", event)
        await keep.publish(name, "in", message_id=event, title=f"Event {event}")
        published.note("acknowledged", event)


async def kill_at_random(rng: random.Random, others: set[int]) -> None:
    """Kill workers, and now and then the zygote that makes them; never the `others`, which belong to other tests."""
    victims = ["worker"] * WORKER_KILLS + ["zygote"] * ZYGOTE_KILLS
    rng.shuffle(victims)
    for victim in victims:
        await anyio.sleep(rng.uniform(0, MOMENT_S))
        zygotes = [pid for pid in children(os.getpid()) if pid not in others]
        workers = [pid for zygote in zygotes for pid in children(zygote)]
        if found := workers if victim == "worker" else zygotes:
            kill(rng.choice(found))


async def until_done(keep: Keep) -> None:
    """Wait until every event has been consumed: what was cut short is tried again a moment later."""
    for name in IN_DANGER:
        while len(await keep.events(name, "done")) < EVENTS:
            await keep.wait_idle()
            await anyio.sleep(MOMENT_S)
