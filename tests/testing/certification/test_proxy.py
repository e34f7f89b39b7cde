"""The proxy: what passes, what is lost, what comes late, and on which of the two sides."""

import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from keep_actors.testing.certification.faults import Act, Fault, PatternFinder, Way
from keep_actors.testing.certification.proxy import Proxy
from keep_actors.testing.certification.pulse import Pulse
from keep_actors.testing.certification.subject import ServiceAddress

pytestmark = pytest.mark.anyio

PATIENCE_S = 5


class Shop:
    """A server of lines: it keeps each, and answers `ok LINE`."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.ended = 0
        self._heard = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[tuple["Shop", ServiceAddress]]:
        shop = cls()
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(listener.serve, shop._serve)
            yield shop, ("127.0.0.1", listener.extra(SocketAttribute.local_port))
            tasks.cancel_scope.cancel()

    async def heard(self, count: int) -> None:
        """Wait for so many lines."""
        with anyio.fail_after(PATIENCE_S):
            while len(self.lines) < count:
                await self._heard.wait()

    async def _serve(self, client: SocketStream) -> None:
        buffered = BufferedByteReceiveStream(client)
        async with client:
            try:
                while True:
                    line = await buffered.receive_until(b"\n", 1000)
                    self.lines.append(line)
                    self._heard.set()
                    self._heard = anyio.Event()
                    await client.send(b"ok " + line + b"\n")
            except (anyio.IncompleteRead, anyio.BrokenResourceError):
                self.ended += 1


class Buyer:
    """A client of lines."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        self._buffered = BufferedByteReceiveStream(stream)

    @classmethod
    @asynccontextmanager
    async def at(cls, address: ServiceAddress) -> AsyncIterator["Buyer"]:
        async with await anyio.connect_tcp(*address) as stream:
            yield cls(stream)

    async def say(self, line: bytes) -> bytes:
        """Send a line, and return the answer."""
        await self.stream.send(line + b"\n")
        return await self.hear()

    async def hear(self) -> bytes:
        with anyio.fail_after(PATIENCE_S):
            return await self._buffered.receive_until(b"\n", 1000)


ENDS = (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError)


async def test_everything_passes_without_a_fault() -> None:
    async with Shop.open() as (shop, target), Proxy.to(target) as proxy, Buyer.at(proxy.address) as buyer:
        assert await buyer.say(b"one") == b"ok one"
        assert await buyer.say(b"two") == b"ok two"
        assert shop.lines == [b"one", b"two"]
        assert proxy.accepted == 1
        assert proxy.moments == 0


@pytest.mark.parametrize("act", [Act.CUT, Act.RESET])
async def test_a_request_is_lost_and_both_sides_are_told(act: Act) -> None:
    async with Shop.open() as (shop, target), Proxy.to(target) as proxy, Buyer.at(proxy.address) as buyer:
        proxy.inject(Fault(act=act, pattern=b"pay"))
        assert await buyer.say(b"hello") == b"ok hello"
        with pytest.raises(ENDS):
            await buyer.say(b"pay 7")
        assert shop.lines == [b"hello"]
        assert proxy.moments == 1
    assert shop.ended == 1


async def test_an_answer_is_lost_when_its_request_has_arrived() -> None:
    async with Shop.open() as (shop, target), Proxy.to(target) as proxy, Buyer.at(proxy.address) as buyer:
        proxy.inject(Fault(act=Act.CUT, on=Way.ANSWERS, pattern=b"pay"))
        assert await buyer.say(b"hello") == b"ok hello"
        with pytest.raises(ENDS):
            await buyer.say(b"pay 7")
        assert shop.lines == [b"hello", b"pay 7"]


async def test_a_pattern_in_pieces_is_found_and_the_service_never_has_all_of_it() -> None:
    async with Shop.open() as (shop, target), Proxy.to(target) as proxy, Buyer.at(proxy.address) as buyer:
        proxy.inject(Fault(act=Act.SWALLOW, pattern=b"COMMIT"))
        assert await buyer.say(b"COM") == b"ok COM"
        for piece in (b"x CO", b"MM", b"IT\n"):
            await buyer.stream.send(piece)
        with anyio.fail_after(PATIENCE_S):
            await proxy.reached()
        assert shop.lines == [b"COM"]


async def test_a_cut_in_the_middle_lets_a_part_pass() -> None:
    async with Shop.open() as (shop, target), Proxy.to(target) as proxy, Buyer.at(proxy.address) as buyer:
        proxy.inject(Fault(act=Act.CUT, pattern=b"one\ntwo\n", passing=6))
        with pytest.raises(ENDS):
            await buyer.say(b"one\ntwo")
        await shop.heard(1)
        assert shop.lines == [b"one"]


async def test_a_held_request_arrives_although_its_sender_has_gone() -> None:
    async with Shop.open() as (shop, target), Proxy.to(target) as proxy:
        proxy.inject(Fault(act=Act.HOLD, pattern=b"pay"))
        async with Buyer.at(proxy.address) as buyer:
            await buyer.stream.send(b"pay 7\n")
            with anyio.fail_after(PATIENCE_S):
                await proxy.reached()
        assert shop.lines == []
        proxy.release()
        await shop.heard(1)
        assert shop.lines == [b"pay 7"]


async def test_a_late_answer_is_still_an_answer() -> None:
    async with Shop.open() as (_, target), Proxy.to(target) as proxy, Buyer.at(proxy.address) as buyer:
        proxy.inject(Fault(act=Act.DELAY, on=Way.ANSWERS, delay_ms=100))
        began = anyio.current_time()
        assert await buyer.say(b"one") == b"ok one"
        assert anyio.current_time() - began >= 0.1


async def test_an_answer_is_swallowed_from_the_words_of_a_service_on() -> None:
    async with Shop.open() as (shop, target), Proxy.to(target) as proxy, Buyer.at(proxy.address) as buyer:
        proxy.inject(Fault(act=Act.SWALLOW, on=Way.ANSWERS, seen_in=Way.ANSWERS, pattern=b"two"))
        assert await buyer.say(b"one") == b"ok one"
        await buyer.stream.send(b"two\n")
        with anyio.fail_after(PATIENCE_S):
            await proxy.reached()
        assert shop.lines == [b"one", b"two"]


async def test_half_an_answer_arrives_and_then_the_end() -> None:
    async with Shop.open() as (shop, target), Proxy.to(target) as proxy, Buyer.at(proxy.address) as buyer:
        proxy.inject(Fault(act=Act.CUT, on=Way.ANSWERS, pattern=b"pay", half=True))
        await buyer.stream.send(b"pay 7\n")
        with anyio.fail_after(PATIENCE_S):
            assert await buyer.stream.receive() == b"ok p"
            with pytest.raises(ENDS):
                await buyer.stream.receive()
        assert shop.lines == [b"pay 7"]


async def test_a_client_that_has_not_got_through_yet_is_dropped_as_well() -> None:
    async with Shop.open() as (shop, target), Proxy.to(target) as proxy, Buyer.at(proxy.address) as buyer:
        await proxy.refuse()
        proxy.drop()
        with pytest.raises(ENDS):
            await buyer.say(b"one")
        assert shop.lines == []


async def test_a_client_that_blocks_the_event_loop_is_freed_from_another_thread() -> None:
    async with Shop.open() as (shop, target), Proxy.to(target) as proxy:
        timer = threading.Timer(0.1, proxy.abandon)
        timer.start()
        with socket.create_connection(proxy.address, timeout=PATIENCE_S) as blocking:  # on purpose
            blocking.sendall(b"one\n")
            with pytest.raises(ConnectionResetError):
                blocking.recv(100)
        timer.join()
        assert shop.lines == []
        with pytest.raises(OSError, match="connection"):
            await anyio.connect_tcp(*proxy.address)


async def test_the_pulse_cures_a_loop_that_stands_still_and_leaves_one_alone_that_goes_on() -> None:
    async with Pulse.watched() as pulse:
        cured = threading.Event()
        with pulse.curing(cured.set):
            began = anyio.current_time()
            await anyio.sleep(0.2)
            assert not cured.is_set()
            cured.wait(10 * PATIENCE_S)
            assert cured.is_set()
            await anyio.sleep(0.1)
            assert pulse.was_slow(since=began)
            assert not pulse.was_slow(since=anyio.current_time() + 1)


async def test_requests_are_delivered_a_second_time_in_lock_step() -> None:
    async with Shop.open() as (shop, target), Proxy.to(target) as proxy:
        async with Buyer.at(proxy.address) as buyer:
            await buyer.say(b"hello")
            await buyer.say(b"pay 7")
        assert await proxy.repeat(b"pay")
        assert shop.lines == [b"hello", b"pay 7", b"hello", b"pay 7"]
        assert not await proxy.repeat(b"never said")


async def test_connections_are_refused_and_accepted_again_at_the_same_address() -> None:
    async with Shop.open() as (_, target), Proxy.to(target) as proxy:
        for _ in range(2):
            await proxy.refuse()
            with pytest.raises(OSError, match="connection"):
                await anyio.connect_tcp(*proxy.address)
            await proxy.accept()
            async with Buyer.at(proxy.address) as buyer:
                assert await buyer.say(b"one") == b"ok one"


async def test_a_cleared_fault_leaves_open_connections_alone() -> None:
    async with Shop.open() as (_, target), Proxy.to(target) as proxy, Buyer.at(proxy.address) as buyer:
        proxy.inject(Fault(act=Act.CUT, pattern=b"pay"))
        proxy.clear()
        assert await buyer.say(b"pay 7") == b"ok pay 7"
        proxy.inject(Fault(act=Act.CUT, pattern=b"pay"))
        with pytest.raises(ENDS):
            await buyer.say(b"pay 8")


async def test_a_service_that_is_not_there_resets_its_client() -> None:
    async with Shop.open() as (_, target):
        pass
    async with Proxy.to(target) as proxy, Buyer.at(proxy.address) as buyer:
        with pytest.raises(ENDS):
            await buyer.say(b"one")


@pytest.mark.parametrize(
    ("chunks", "place"),
    [
        ([b"COMMIT"], 0),
        ([b"xxCOMMIT"], 2),
        ([b"COM", b"MIT"], -3),
        ([b"C", b"O", b"M", b"M", b"I", b"xT", b"COMMIT"], 0),
        ([b"CCO", b"MMIT"], -2),
        ([b"COMMI", b"COMMIT"], 0),
    ],
)
def test_the_place_of_a_pattern(chunks: list[bytes], place: int) -> None:
    finder = PatternFinder(b"COMMIT")
    assert [finder.find(chunk) for chunk in chunks] == [None] * (len(chunks) - 1) + [place]


def test_no_pattern_is_at_the_first_byte() -> None:
    assert PatternFinder(b"").find(b"anything") == 0
