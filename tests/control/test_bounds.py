"""What a request may cost: whoever sends much, or deep, or huge numbers, is refused in a moment and hurts nobody."""

import gc
import logging
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from keep_actors.api.command import Command
from keep_actors.api.commands import DeployScript, GivePermission, PublishMessage, Resolve
from keep_actors.control import bounds, protocol
from keep_actors.control.place import place_of
from keep_actors.control.protocol import Follow
from keep_actors.policy import Grant
from tests.control.test_control import controlled, in_thread, say

ROOM = protocol.REQUEST_BYTES_MAX - 1_000


def publish(payload: bytes) -> bytes:
    return (
        b'{"v":1,"do":"publish","workflow":"flow","topic":"in","message_id":"m","title":"t","payload":' + payload + b"}"
    )


def filled(each: bytes) -> bytes:
    """A list of these, as long as a line may be."""
    return publish(b"[" + b",".join([each] * (ROOM // (len(each) + 1))) + b"]")


MUCH = {
    "empty lists": filled(b"[]"),
    "lists in lists": filled(b"[[[]]]"),
    "deep lists": filled(b"[" * 60 + b"]" * 60),
    "a list that never ends": publish(b"[" * ROOM),
    "objects": filled(b'{"":0}'),
    "objects with keys of their own": publish(
        b"{" + b",".join(b'"%d":[]' % number for number in range(ROOM // 12)) + b"}"
    ),
    "numbers": filled(b"1"),
    "long numbers": filled(b"1" * bounds.DIGITS_MAX),
    "longer numbers": filled(b"1" * 4_000),
    "the smallest numbers": publish(b"[" + b",".join([b"5e-324"] * 190_000) + b"]"),
    "the largest numbers": filled(b"1.7976931348623157e+308"),
    "numbers between two others": filled(b"1.2345678901234567890123E-300"),
    "digits here and there": publish(b"[" + b"1 " * (ROOM // 2) + b"]"),
    "one number": publish(b"1" * ROOM),
    "texts": filled(b'""'),
    "escapes": publish(b'"' + b"\\n" * (ROOM // 2) + b'"'),
    "quotes": publish(b'"' + b'\\"' * (ROOM // 2) + b'"'),
    "quotes that end nothing": publish(b'"' * ROOM),
    "backslashes": publish(b'"' + b"\\" * ROOM),
    "commas": publish(b"," * ROOM),
    "one text": publish(b'"' + b"x" * ROOM + b'"'),
}


@pytest.mark.parametrize("what", MUCH)
def test_no_line_takes_the_event_loop_a_quarter_of_a_second(what: str) -> None:
    line = MUCH[what]
    assert len(line) <= protocol.REQUEST_BYTES_MAX
    took: list[float] = []
    for _ in range(3):
        # Of this thread alone: how crowded the machine is does not matter.
        before = time.thread_time()
        with suppress(protocol.RequestRefused):
            bounds.decode(line)
        took.append(time.thread_time() - before)
    assert min(took) < 0.25


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"[" + b",".join([b"[]"] * bounds.CONTAINERS_MAX) + b"]", "at most 50,000 lists and objects"),
        (b"[" + b",".join([b"1"] * (bounds.VALUES_MAX + 1)) + b"]", "at most 200,000 values"),
        (b"[" * bounds.DEPTH_MAX + b"]" * bounds.DEPTH_MAX, "at most 100 deep"),
        (b"-" + b"1" * (bounds.DIGITS_MAX + 1), "at most 1,000 digits"),
        (b"0." + b"1" * (bounds.DIGITS_MAX + 1), "at most 1,000 digits"),
        (b"1e999", "out of range"),
        (b"[" + b",".join([b"5e-324"] * 2_001) + b"]", "at most 2,000 numbers with an exponent of three digits"),
    ],
)
def test_what_is_too_much_is_refused_with_words(payload: bytes, words: str) -> None:
    with pytest.raises(protocol.RequestRefused, match=words):
        bounds.decode(publish(payload))


LARGE: dict[str, Command[Any]] = {
    "many lists": PublishMessage(workflow="flow", topic="in", message_id="m", title="t", payload=[[{"n": 1}]] * 20_000),
    "brackets in a text": PublishMessage(
        workflow="flow", topic="in", message_id="m", title="t", payload='[{"\\' * 300_000
    ),
    "a script": DeployScript(source='const a = "[[[{{{"; // \\ " \n' * 100_000),
    "a large number": Resolve(mutation_id="m", verdict="happened", by="ann", result=10**100),
    "small numbers": PublishMessage(
        workflow="flow", topic="in", message_id="m", title="t", payload=[1e-300, "5e-324"] * 2_000
    ),
    "the last entry": Follow(after=2**63 - 1),
}


@pytest.mark.parametrize("what", LARGE)
def test_what_is_large_and_not_too_much_is_a_request(what: str) -> None:
    assert bounds.decode(msgspec.json.encode(LARGE[what])) == LARGE[what]


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**40])
def test_a_number_that_no_database_keeps_is_refused_wherever_it_means_something(number: int) -> None:
    lines = [
        b'{"v":1,"do":"follow","after":%d}' % number,
        b'{"v":1,"do":"resolve","mutation_id":"m","verdict":"happened","by":"a","version":%d}' % number,
        b'{"v":1,"do":"grant","workflow":"w","by":"a","grant":{"permission":"p.q","per_run":%d}}' % number,
        b'{"v":1,"do":"deploy","source":"","grants":[{"permission":"p.q","per_day":%d}]}' % number,
    ]
    for line in lines:
        with pytest.raises(protocol.RequestRefused, match=r"out of range|at least one call"):
            bounds.decode(line)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (DeployScript(source="", drop=["t"] * 10_001), "`drop` has more than 10,000 entries"),
        (
            DeployScript(source="", move={str(number): "t" for number in range(10_001)}),
            "`move` has more than 10,000 entries",
        ),
        (DeployScript(source="", grants=[Grant("a.b")] * 10_001), "`grants` has more than 10,000 entries"),
        (DeployScript(source="", grants=[Grant("a" * 100_001)]), "`permission` has more than 100,000 characters"),
        (DeployScript(source="", timezone="x" * 100_001), "`timezone` has more than 100,000 characters"),
    ],
)
def test_lists_and_texts_that_nobody_has_typed_are_refused(request_: Command[Any], words: str) -> None:
    with pytest.raises(protocol.RequestRefused, match=words):
        bounds.decode(msgspec.json.encode(request_))


def test_a_limit_that_is_a_number_is_a_request() -> None:
    grant = GivePermission(workflow="w", by="a", grant=Grant("p.q", per_run=3))
    assert bounds.decode(msgspec.json.encode(grant)) == grant


@pytest.mark.anyio
async def test_who_follows_from_a_place_that_cannot_be_is_refused_and_it_is_no_bug_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    db = tmp_path / "keep.db"
    with caplog.at_level(logging.ERROR):
        async with controlled(db):
            for after in (2**63, 2**64, 10**30, -(2**70)):
                said = await in_thread(partial(say, db, b'{"v":1,"do":"follow","after":%d}\n' % after))
                assert said["error"]["kind"] == "request"
                assert "out of range" in said["error"]["words"]
    assert caplog.records == []


@pytest.mark.anyio
async def test_many_who_ask_for_much_at_once_do_not_hold_up_the_event_loop_together(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    line = publish(b"[" + b",".join([b"[1,2,3]"] * 49_000) + b"]")
    longest = 0.0

    async def look() -> None:
        nonlocal longest
        while True:
            # Of this thread alone: how crowded the machine is does not matter.
            before = time.thread_time()
            await anyio.lowlevel.checkpoint()
            longest = max(longest, time.thread_time() - before)

    def ask_together(count: int) -> list[bytes]:
        asking = [socket.socket(socket.AF_UNIX) for _ in range(count)]
        for each in asking:
            each.connect(str(place_of(db)))
            each.sendall(line)
        # All of it has been read but the end: what follows finds all of them ready.
        for each in asking:
            each.sendall(b"\n")
        answers = [each.makefile("rb").readline() for each in asking]
        for each in asking:
            each.close()
        return answers

    # Collecting the garbage of all other tests takes its time too.
    gc.collect()
    gc.freeze()
    try:
        async with controlled(db), anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            answers = await in_thread(partial(ask_together, 20))
            tasks.cancel_scope.cancel()
    finally:
        gc.unfreeze()
    assert all(b'"error"' in each or b'"answer"' in each for each in answers)
    before = time.thread_time()
    with suppress(protocol.RequestRefused):
        bounds.decode(line)
    alone = time.thread_time() - before
    # As a ratio: a crowded machine is slower in both. Twenty in one turn would take twenty times as long.
    assert longest < 8 * alone
