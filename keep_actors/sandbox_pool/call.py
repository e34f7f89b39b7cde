"""One invocation, as its driver sees it: requests, answers, and the end.

Two classes with one interface: `WorkerCall` talks to a worker process and checks all that it sends; `ThreadCall` runs
the script in a thread of the host.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol, TypeVar

from anyio.lowlevel import checkpoint

from keep_actors.kernel.waiter import Waiter
from keep_actors.sandbox_pool.worker import Worker
from keep_sandbox.conversation import Conversation
from keep_sandbox.invocation import Capabilities, Invocation, MethodKind
from keep_sandbox.json_text import UnfitText, check_json
from keep_sandbox.limits import Limits
from keep_sandbox.outcomes import Outcome, Refused, Request, Terminal
from keep_sandbox.protocol import AnswerFrame, CallFrame, Forget, Inspect, RunFrame, Source, encode
from keep_sandbox.trusted import TrustedCall

_MOVES_MAX: Final = 5
"""A call whose worker ended before its turn came goes to another, this many times."""

T = TypeVar("T")


class RunSync(Protocol):
    """Runs trusted scripts: in a thread, or directly in a simulation."""

    async def __call__(self, function: Callable[[], T], /) -> T:
        """Call the function and return its result."""
        ...


class Call(Protocol):
    """The interface of an invocation, from `SandboxPool.invoke`."""

    @property
    def logs(self) -> list[str]:
        """The log lines of the script so far."""
        ...

    @property
    def terminal(self) -> Terminal | None:
        """The end, once it was reached."""
        ...

    async def next(self) -> Outcome:
        """The next request, or the end."""
        ...

    async def answer(self, request_id: int, value: str) -> None:
        """Give a request its answer, as JSON text. Raises `ValueError` if it is not valid JSON, or too large."""
        ...

    async def refuse(self, reason: str) -> Refused:
        """End the invocation because of a request. The script cannot catch it, and none of its code runs any more."""
        ...


class Inspecting(NamedTuple):
    """The work of an inspection."""

    source: str
    methods: dict[str, MethodKind] | None


class WorkerCall:
    """A call in a worker process. It is made without one; `begin` puts it on a worker."""

    def __init__(
        self,
        work: Invocation | Inspecting,
        limits: Limits,
        *,
        workflow_id: str | None,
        place: "Callable[[WorkerCall, bool], Awaitable[None]]",
        own_limits: bool = False,
    ) -> None:
        self.worker: Worker | None = None
        self.workflow_id = workflow_id
        self.wall_left_s = limits.wall_ms / 1000
        self.is_dropped = False
        self._work = work
        self._limits = limits
        self._own_limits = own_limits
        self._place = place
        self._number = 0
        self._conversation = Conversation(0, Capabilities(), limits)
        self._heard = False
        self._outcomes: deque[Outcome] = deque()
        self._terminal: Terminal | None = None
        self._driver = Waiter()
        self._is_unplaced = False
        self._was_computing = False
        self._has_second_chance = True
        self._moves_left = _MOVES_MAX

    @property
    def logs(self) -> list[str]:
        """The log lines of the script so far."""
        return self._conversation.logs

    @property
    def terminal(self) -> Terminal | None:
        """The end, once it was reached."""
        return self._terminal

    @property
    def source(self) -> str:
        """The script."""
        return self._work.source

    async def next(self) -> Outcome:
        """The next request, or the end."""
        assert self._terminal is None, "the invocation has ended"
        if self._outcomes:
            await checkpoint()
        while not self._outcomes:
            if self._is_unplaced:
                self._is_unplaced = False
                await self._place(self, self._was_computing)
            else:
                await self._driver.wait()
        outcome = self._outcomes.popleft()
        if not isinstance(outcome, Request):
            self._terminal = outcome
        return outcome

    async def answer(self, request_id: int, value: str) -> None:
        """Give a request its answer, as JSON text."""
        _check_answer(value, self._limits)
        # A worker that was lost meanwhile gets no answer: `next` tells.
        if self.worker is not None and self._conversation.answered(request_id):
            self.worker.begin_turn(self._number)
            self.worker.send(encode(AnswerFrame(self._number, request_id, value)))
            await self.worker.room()

    async def refuse(self, reason: str) -> Refused:
        """End the invocation because of a request."""
        assert self._terminal is None, "the invocation has ended"
        refused = self._terminal = Refused(reason=reason)
        self.drop()
        return refused

    def drop(self) -> bool:
        """Drop the script, wherever it is. Returns False if its worker still computes for it."""
        self.is_dropped = True
        if self.worker is None:
            return True
        self.worker.drop(self._number)
        return not self.worker.owes(self._number)

    # Its worker.

    def begin(self, worker: Worker, now: int) -> None:
        """Send the call to the worker, and its script if the worker does not hold it. `now` is on any counter."""
        self._conversation = Conversation(worker.served + 1, self._capabilities, self._limits)
        order = self._order(worker, worker.served + 1, now)
        self.worker = worker
        self._number = worker.admit(self)
        worker.send(order)

    @property
    def is_over(self) -> bool:
        """True if its script has ended."""
        return self._conversation.is_over

    def hear(self, frame: CallFrame, size: int) -> None:
        """Take a frame of the worker. Raises `Violation`."""
        outcome = self._conversation.receive(frame, size)
        self._heard = True
        if outcome is not None and not self.is_dropped:
            self._outcomes.append(outcome)
            self._driver.wake()

    def lose(self, outcome: Terminal, *, was_computing: bool, is_to_blame: bool) -> None:
        """Take the end of the worker: the end of this call, unless nothing of its script has happened yet."""
        self.worker = None
        if not is_to_blame and not self._heard and self._may_move(was_computing):
            self._is_unplaced, self._was_computing = True, was_computing
        else:
            self._outcomes.append(outcome)
        self._driver.wake()

    def _may_move(self, was_computing: bool) -> bool:
        """Return True if another worker may begin the call. One that was computing gets one more chance: perhaps the
        call itself is the reason why the system killed the worker."""
        if was_computing:
            has_chance, self._has_second_chance = self._has_second_chance, False
            return has_chance
        self._moves_left -= 1
        return self._moves_left >= 0

    @property
    def _capabilities(self) -> Capabilities:
        return self._work.capabilities if isinstance(self._work, Invocation) else Capabilities()

    def _order(self, worker: Worker, number: int, now: int) -> bytes:
        work = self._work
        if isinstance(work, Inspecting):
            return encode(Inspect(number, work.source, work.methods))
        script, is_new, forgotten = worker.take(work.source, now)
        if is_new:
            # Sent even if the call below cannot be encoded: the worker holds the script from here on.
            worker.send(b"".join([*map(encode, map(Forget, forgotten)), encode(Source(script, work.source))]))
        limits = self._limits if self._own_limits else None
        return encode(
            RunFrame(number, script, work.handler, work.args, work.capabilities, work.now_ms, work.seed, limits)
        )


class ThreadCall:
    """A call in the host's own process, for trusted scripts."""

    def __init__(self, invocation: Invocation, limits: Limits, run_sync: RunSync) -> None:
        self._run_sync = run_sync
        self._limits = limits
        self._call = TrustedCall(invocation, limits)
        self._terminal: Terminal | None = None

    @property
    def logs(self) -> list[str]:
        """The log lines of the script so far."""
        return self._call.logs

    @property
    def terminal(self) -> Terminal | None:
        """The end, once it was reached."""
        return self._terminal

    async def next(self) -> Outcome:
        """The next request, or the end."""
        outcome = await self._run_sync(self._call.next)
        if not isinstance(outcome, Request):
            self._terminal = outcome
        return outcome

    async def answer(self, request_id: int, value: str) -> None:
        """Give a request its answer, as JSON text."""
        _check_answer(value, self._limits)
        await self._run_sync(lambda: self._call.answer(request_id, value))

    async def refuse(self, reason: str) -> Refused:
        """End the invocation because of a request."""
        refused = self._call.refuse(reason)
        self._terminal = refused
        return refused

    def close(self) -> None:
        """Drop a script that has not ended."""
        if self._terminal is None:
            self._call.refuse("dropped")


def _check_answer(value: str, limits: Limits) -> None:
    """Hold answers to the same limits as values of the script, which has to decode them."""
    try:
        check_json(value, limits)
    except UnfitText as error:
        raise ValueError(f"the answer is not valid: {error}") from None
