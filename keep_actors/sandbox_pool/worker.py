"""One worker process, as the host sees it: its calls, the turns that it owes, and all that goes over its socket.

One task (`run`) reads the socket as long as the worker lives and hands each frame to its call. Nothing here waits for a
worker: bytes that its socket does not take are queued, and a turn that takes longer than its call may is the end of the
worker.
"""

import enum
import math
import socket
from collections.abc import Callable
from typing import Final, Protocol, assert_never

import anyio
import anyio.lowlevel

from keep_actors.kernel.socket_reader import SocketReader
from keep_actors.kernel.waiter import Waiter
from keep_actors.sandbox_pool.placement import Candidate, Group, Shelf, Taken, Turns
from keep_sandbox.conversation import Violation
from keep_sandbox.limits import Limits
from keep_sandbox.outcomes import ProtocolViolation, Terminal, WorkerLost, outcome_of_exit
from keep_sandbox.protocol import Abort, BadFrame, CallFrame, FrameReader, FromWorker, Ready, Waits, encode, from_worker

_WRITE_BYTES: Final = 1 << 18
_QUEUED_BYTES_MAX: Final = 1 << 20
"""A sender waits while more than this is queued."""


class Why(enum.Enum):
    """The reason why a worker is no longer listened to."""

    GONE = "it has closed its socket"
    CLOSED = "the host has closed its socket"
    LATE = "a call computed for longer than it may"
    FORGED = "it sent what an honest worker never sends"


class Caller(Protocol):
    """A call, as its worker sees it."""

    wall_left_s: float
    """The time that it may still compute."""
    is_dropped: bool
    """True if its outcome is not needed any more."""
    workflow_id: str | None

    @property
    def is_over(self) -> bool:
        """True if its script has ended."""
        ...

    def hear(self, frame: CallFrame, size: int) -> None:
        """Take a frame. Raises `Violation`."""
        ...

    def lose(self, outcome: Terminal, *, was_computing: bool, is_to_blame: bool) -> None:
        """Note that the worker has ended. `is_to_blame` is False if that may have nothing to do with this call."""
        ...


class Worker:
    """A worker. It takes calls while it `is_open`."""

    def __init__(self, serial: int, sock: socket.socket, limits: Limits, on_done: "Callable[[Worker], None]") -> None:
        sock.setblocking(False)
        self.serial = serial
        self.pid: int | None = None
        self.group: Group | None = None
        self.served = 0
        self.is_retired = False
        """True if it takes no more calls, and is to end when it has none."""
        self.idle_since = 0.0
        self.started = anyio.Event()
        """It is ready, or has ended."""
        self.exited = anyio.Event()
        """Its process has ended."""
        self.returncode: int | None = None
        self.shelf: Shelf | None = None
        self._is_ready = False
        self._is_over = False
        self._socket = sock
        self._bytes = SocketReader(sock)
        self._reader: FrameReader[FromWorker] = FrameReader(from_worker, limits.frame_bytes)
        self._on_done = on_done
        self._calls: dict[int, Caller] = {}
        self._turns = Turns()
        self._said_wrong = ""
        self._is_stray = False
        self._unsent = bytearray()
        self._sender = Waiter()
        self._drained: anyio.Event | None = None
        self._watch = anyio.CancelScope()

    @property
    def is_open(self) -> bool:
        """True if it can take calls."""
        return self._is_ready and not self._is_over and not self.is_retired

    @property
    def calls(self) -> int:
        """The number of its calls, waiting or computing."""
        return len(self._calls)

    def owes(self, number: int) -> bool:
        """Return True if it has a turn of this call to compute."""
        return self._turns.owes(number)

    def candidate(self, source: str) -> Candidate:
        """This worker as a candidate for a call of this script."""
        computing_s = anyio.current_time() - self._turns.since if self._turns else 0.0
        scripts, ran_at = (len(self.shelf), self.shelf.ran_at(source)) if self.shelf is not None else (0, 0)
        return Candidate(len(self._turns), computing_s, len(self._calls), scripts, ran_at)

    # The host speaks.

    def admit(self, caller: Caller) -> int:
        """Take a call, whose first turn begins with what is sent next. Returns its number."""
        assert self.is_open, "only an open worker is chosen"
        self.served += 1
        self._calls[self.served] = caller
        self.begin_turn(self.served)
        return self.served

    def take(self, source: str, now: int) -> Taken:
        """Note that the script runs here now."""
        assert self.shelf is not None, "a worker has a shelf since it belongs to a group"
        return self.shelf.take(source, now)

    def begin_turn(self, number: int) -> None:
        """Note that what is sent next lets this call compute."""
        self._turns.begin(number, anyio.current_time())
        self._watch_the_clock()

    def drop(self, number: int) -> None:
        """Let the worker drop a call. It stays known until the turns that it owes have ended."""
        if number in self._calls and not self._is_over:
            self.send(encode(Abort(number)))
            self._forget_if_done(number)

    def send(self, data: bytes) -> None:
        """Send now if the worker has one call; else with all that is sent in this turn of the event loop. Bytes for a
        worker that has ended are dropped."""
        if self._is_over:
            return
        self._unsent += data
        if len(self._calls) > 1 or not self._send_some():
            self._sender.wake()

    async def room(self) -> None:
        """Wait while too much is queued."""
        while len(self._unsent) > _QUEUED_BYTES_MAX and not self._is_over:
            if self._drained is None:
                self._drained = anyio.Event()
            await self._drained.wait()

    def close(self) -> None:
        """Close the socket, which ends `run`; an honest worker ends itself then."""
        self._is_over = True
        self._unsent.clear()
        self._make_room()
        self._bytes.close()

    # The worker speaks.

    async def run(self) -> Why:
        """Listen to the worker until it ends, or has to be ended."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_queued)
                why = await self._listen()
                if self._is_over:
                    why = Why.CLOSED  # by the host: it looks like gone
                # At once, so that no other call is put here meanwhile.
                self._is_over = True
                tasks.cancel_scope.cancel()
            return why
        finally:
            self._is_over = True
            self._bytes.rest()
            self.started.set()
            self._make_room()

    def end_calls(self, why: Why) -> Terminal:
        """Give every call that is left its outcome. Returns that of the call that was computing, or would have been."""
        outcome = self._outcome(why)
        calls, self._calls = self._calls, {}
        suspect = self._turns.computing
        if suspect is None and why is Why.FORGED and len(calls) == 1:
            # It waited, and yet it spoke. Of several that wait, any one may have done that.
            suspect = next(iter(calls))
        for number, caller in calls.items():
            if number == suspect:
                is_to_blame = not self._is_stray and not isinstance(outcome, WorkerLost)
                caller.lose(outcome, was_computing=True, is_to_blame=is_to_blame)
            else:
                caller.lose(WorkerLost(), was_computing=False, is_to_blame=False)
        return outcome

    def _outcome(self, why: Why) -> Terminal:
        match why:
            case Why.GONE | Why.LATE:
                return outcome_of_exit(self.returncode, wall=why is Why.LATE)
            case Why.FORGED:
                return ProtocolViolation(message=self._said_wrong)
            case Why.CLOSED:
                return WorkerLost()
            case _:
                assert_never(why)

    @property
    def computing(self) -> Caller | None:
        """The call that computes, or did when the worker ended."""
        number = self._turns.computing
        return self._calls.get(number) if number is not None else None

    async def _listen(self) -> Why:
        while True:
            with anyio.CancelScope(deadline=self._deadline()) as self._watch:
                while True:
                    data = await self._bytes.receive()
                    if (why := self._hear(data) if data else Why.GONE) is not None:
                        return why
            # The clock is set only to ring earlier, so it may have rung for a turn that has ended.
            if self._deadline() <= anyio.current_time():
                # The event loop may have been late itself: an answer that is there counts.
                if (why := self._hear(self._bytes.take())) is not None:
                    return why
                if self._deadline() <= anyio.current_time():
                    return Why.LATE

    def _hear(self, data: bytes) -> Why | None:
        """Take what has come. Returns the reason if that is the end."""
        self._reader.feed(data)
        try:
            for frame in self._reader:
                self._receive(frame)
                if self._is_over:
                    return Why.GONE
        except (BadFrame, Violation) as error:
            self._said_wrong = str(error)
            return Why.FORGED
        return None

    def _receive(self, frame: FromWorker) -> None:
        if isinstance(frame, Ready):
            if self._is_ready:
                raise Violation("Ready a second time")
            self._is_ready = True
            self.started.set()
            return
        caller = self._calls.get(frame.call)
        if caller is None:
            # Said by a call that has ended, it may have been under way when the next one began.
            self._is_stray = 0 < frame.call <= self.served
            raise Violation(f"a frame of call {frame.call}, which this worker does not have")
        if frame.call != self._turns.computing:
            raise Violation(f"a frame of call {frame.call}, which is not its turn")
        caller.hear(frame, self._reader.frame_bytes)
        if caller.is_over or isinstance(frame, Waits):
            now = anyio.current_time()
            caller.wall_left_s -= self._turns.end(now, is_over=caller.is_over)
            self._watch_the_clock()
            self._forget_if_done(frame.call)

    def _forget_if_done(self, number: int) -> None:
        caller = self._calls[number]
        if caller.is_over or (caller.is_dropped and not self._turns.owes(number)):
            del self._calls[number]
            self._on_done(self)

    # Time.

    def _deadline(self) -> float:
        """The time at which the computing call has used up its own."""
        caller = self.computing
        return math.inf if caller is None else self._turns.since + caller.wall_left_s

    def _watch_the_clock(self) -> None:
        deadline = self._deadline()
        if deadline < self._watch.deadline:
            self._watch.deadline = deadline

    async def _send_queued(self) -> None:
        while True:
            if not self._unsent:
                await self._sender.wait()
            elif not self._send_some():
                try:
                    await anyio.wait_writable(self._socket)
                except (anyio.ClosedResourceError, OSError, ValueError):
                    return  # the reader sees the end

    def _send_some(self) -> bool:
        """Send what the socket takes. Returns False if bytes are left."""
        try:
            del self._unsent[: self._socket.send(self._unsent[:_WRITE_BYTES])]
        except BlockingIOError:
            return False
        except OSError:
            self._unsent.clear()  # the reader sees the end
        if len(self._unsent) <= _QUEUED_BYTES_MAX:
            self._make_room()
        return not self._unsent

    def _make_room(self) -> None:
        """Wake the senders that wait for room."""
        if self._drained is not None:
            self._drained.set()
            self._drained = None
