"""Reading a socket for as long as it lives."""

import asyncio
import socket
import sys
from collections.abc import Iterator

import anyio
import pytest
from anyio.lowlevel import checkpoint

from keep_actors.kernel.socket_reader import SocketReader

pytestmark = pytest.mark.anyio


@pytest.fixture
def ends() -> Iterator[tuple[SocketReader, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield SocketReader(ours), theirs
    theirs.close()
    ours.close()


Ends = tuple[SocketReader, socket.socket]


async def test_bytes_come_in_order_and_then_the_end(ends: Ends) -> None:
    reader, theirs = ends
    heard = b""
    async with anyio.create_task_group() as tasks:

        async def send() -> None:
            for each in (b"one ", b"two ", b"three"):
                theirs.sendall(each)
                await anyio.sleep(0.001)
            theirs.close()

        tasks.start_soon(send)
        while data := await reader.receive():
            heard += data
    assert heard == b"one two three"
    assert await reader.receive() == b""
    reader.close()


async def test_what_comes_during_a_cancelled_wait_is_not_lost(ends: Ends) -> None:
    reader, theirs = ends
    with anyio.move_on_after(0.01):
        await reader.receive()
    theirs.sendall(b"late")
    await anyio.sleep(0.01)
    assert reader.take() == b"late"
    theirs.sendall(b"later")
    assert await reader.receive() == b"later"
    reader.close()


async def test_closing_ends_a_wait(ends: Ends) -> None:
    reader, _ = ends
    heard: list[bytes] = []
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            heard.append(await reader.receive())

        tasks.start_soon(listen)
        await anyio.wait_all_tasks_blocked()
        reader.close()
        reader.close()
    assert heard == [b""]
    assert await reader.receive() == b""
    assert reader.take() == b""


async def test_a_reader_that_rests_leaves_the_bytes_where_they_are(ends: Ends) -> None:
    reader, theirs = ends
    theirs.sendall(b"first")
    assert await reader.receive() == b"first"
    reader.rest()
    theirs.setblocking(False)
    sent = 0
    try:
        while True:
            sent += theirs.send(bytes(65_536))
            await checkpoint()
    except BlockingIOError:
        pass  # nobody reads, so the socket is full
    received = 0
    while received < sent:
        received += len(await reader.receive())
    assert received == sent
    reader.close()


async def test_one_that_never_stops_to_talk_lets_others_run(ends: Ends) -> None:
    reader, theirs = ends
    theirs.setblocking(False)
    turns = 0
    async with anyio.create_task_group() as tasks:

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await checkpoint()

        tasks.start_soon(others)
        for _ in range(50):
            theirs.send(b"x" * 1_000)
            assert await reader.receive()
        tasks.cancel_scope.cancel()
    assert turns >= 40
    reader.close()


@pytest.mark.skipif(sys.platform == "win32", reason="that loop cannot read by itself")
def test_it_works_in_a_loop_that_anyio_did_not_start() -> None:
    async def main() -> bytes:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            reader = SocketReader(ours)
            asyncio.get_running_loop().call_later(0.01, theirs.sendall, b"hello")
            try:
                return await reader.receive()
            finally:
                reader.close()

    assert asyncio.run(main()) == b"hello"


class LoopWithoutReaders(asyncio.SelectorEventLoop):
    """A loop like the usual one of Windows."""

    def add_reader(self, *_: object) -> None:
        raise NotImplementedError


def test_a_loop_that_cannot_read_by_itself_is_helped() -> None:
    async def main() -> bytes:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            reader = SocketReader(ours)
            asyncio.get_running_loop().call_later(0.01, theirs.sendall, b"hello")
            try:
                return await reader.receive()
            finally:
                reader.close()

    with asyncio.Runner(loop_factory=LoopWithoutReaders) as runner:
        assert runner.run(main()) == b"hello"
