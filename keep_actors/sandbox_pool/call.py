"""One invocation, as its driver sees it: requests, answers, and the end.

Two classes with one interface: `JailedCall` talks to a worker process and checks all that it sends; `ThreadCall` runs
the script in a thread of the host.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import anyio

from keep_actors.sandbox_pool.zygote import Worker, Zygote
from keep_sandbox.conversation import Conversation, Violation
from keep_sandbox.invocation import Capabilities, Invocation
from keep_sandbox.json_text import UnfitText, check_json
from keep_sandbox.limits import Limits
from keep_sandbox.outcomes import (
    Outcome,
    ProtocolViolation,
    Refused,
    Request,
    Terminal,
    WorkerLost,
    outcome_of_exit,
)
from keep_sandbox.protocol import Abort, AnswerFrame, BadFrame, Inspect, RunFrame, encode
from keep_sandbox.trusted import TrustedCall

_EXIT_REPORT_TIMEOUT_S = 2

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


class JailedCall:
    """A call in a worker process."""

    def __init__(
        self,
        zygote: Zygote,
        worker: Worker,
        work: Invocation | tuple[str, dict[str, str] | None],
        limits: Limits,
        replace: "Callable[[JailedCall], Awaitable[tuple[Zygote, Worker]]] | None" = None,
    ) -> None:
        self.zygote = zygote
        self.worker = worker
        self._work = work
        self._limits = limits
        self._replace = replace
        self._wall_left_s = limits.wall_ms / 1000
        self._heard = False
        self._terminal: Terminal | None = None
        self._conversation = self._begin()

    @property
    def logs(self) -> list[str]:
        """The log lines of the script so far."""
        return self._conversation.logs

    @property
    def terminal(self) -> Terminal | None:
        """The end, once it was reached."""
        return self._terminal

    async def start(self) -> None:
        """Send the script to the worker."""
        call = self.worker.calls
        if isinstance(self._work, Invocation):
            data = encode(RunFrame(call, self._work, self._limits))
        else:
            source, methods = self._work
            data = encode(Inspect(call, source, methods))  # type: ignore[arg-type]  # checked where it was given
        await self._send(data)

    async def next(self) -> Outcome:
        """The next request, or the end."""
        assert self._terminal is None, "the invocation has ended"
        while True:
            outcome = await self._receive()
            if outcome is not None:
                if not isinstance(outcome, Request):
                    self._end(outcome)
                return outcome

    async def answer(self, request_id: int, value: str) -> None:
        """Give a request its answer, as JSON text."""
        _check_answer(value, self._limits)
        if self._conversation.answered(request_id):
            await self._send(encode(AnswerFrame(self.worker.calls, request_id, value)))

    async def refuse(self, reason: str) -> Refused:
        """End the invocation because of a request."""
        assert self._terminal is None, "the invocation has ended"
        refused = Refused(reason=reason)
        # Ended before the send: the call is over, whatever the worker does from here on.
        self._end(refused)
        await self._send(encode(Abort(self.worker.calls)))
        return refused

    def _begin(self) -> Conversation:
        self.worker.calls += 1
        self.worker.link.received_bytes = 0
        capabilities = self._work.capabilities if isinstance(self._work, Invocation) else Capabilities()
        return Conversation(self.worker.calls, capabilities, self._limits)

    async def _receive(self) -> Outcome | None:
        link = self.worker.link
        if self._wall_left_s <= 0:
            return await self._killed(wall=True)
        try:
            started = anyio.current_time()
            wait_s = None if self._conversation.host_has_the_word else self._wall_left_s
            with anyio.move_on_after(wait_s) as scope:
                frame = await link.receive()
            if wait_s is not None:
                self._wall_left_s -= anyio.current_time() - started
            if scope.cancelled_caught:
                return await self._killed(wall=True)
            if frame is None:
                return await self._lost()
            self._heard = True
            if link.received_bytes > self._limits.invocation_bytes:
                raise Violation("more bytes than allowed")
            return self._conversation.receive(frame)
        except (BadFrame, Violation) as error:
            self.zygote.kill(self.worker)
            return ProtocolViolation(message=str(error))

    async def _lost(self) -> Outcome | None:
        outcome = await self._killed(wall=False)
        if isinstance(outcome, WorkerLost) and not self._heard and self._replace is not None:
            # The worker died before it sent anything, so another worker may run the script.
            replace, self._replace = self._replace, None
            self.zygote, self.worker = await replace(self)
            self._conversation = self._begin()
            await self.start()
            return None
        return outcome

    async def _killed(self, *, wall: bool) -> Terminal:
        """The outcome of a process that has ended, or is killed here."""
        if wall:
            self.zygote.kill(self.worker)
        with anyio.move_on_after(_EXIT_REPORT_TIMEOUT_S):
            await self.worker.exited.wait()
        return outcome_of_exit(self.worker.returncode, wall=wall)

    async def _send(self, data: bytes) -> None:
        """Send, at the cost of the worker's own time: one that does not read is killed when its time is up.

        `next` then reports its end.
        """
        started = anyio.current_time()
        with anyio.move_on_after(max(self._wall_left_s, 0)) as scope:
            await self.worker.link.send(data)
        self._wall_left_s -= anyio.current_time() - started
        if scope.cancelled_caught:
            self._wall_left_s = 0
            self.zygote.kill(self.worker)

    def _end(self, terminal: Terminal) -> None:
        self._conversation.end()
        self._terminal = terminal


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
