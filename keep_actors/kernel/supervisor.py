"""A supervisor keeps actors alive: one that crashes is made again and continues with the same mailbox.

One for one: a crash concerns only the child that crashed and the askers of messages it had taken. A child that crashes
too often is given up; without `given_up` the supervisor itself ends and leaves it to its owner: it escalates. Only here
in the kernel are failures caught and exception groups unwrapped.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint

from keep_actors.backoff import doubled_ms
from keep_actors.kernel.actor import Actor, ActorRef
from keep_actors.kernel.errors import ActorStopped, Escalated
from keep_actors.kernel.time import Time

M = TypeVar("M")

logger = logging.getLogger("keep_actors.kernel")


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often a child may crash, and how long it waits before it is made again."""

    restarts_max: int = 5
    """With more crashes than this within `within_ms` it is not restarted again."""
    within_ms: int = 60_000
    backoff_ms: int = 100
    """The wait after the first crash; doubled with every other crash within `within_ms`."""
    backoff_max_ms: int = 10_000


class Supervisor:
    """Runs actors, each in a task of its own. `run` it in a task group; `start` children before or after that.

    `on_crash` receives the name of the child, the error, and how often the child had been restarted until then.
    """

    def __init__(self, name: str, time: Time, *, on_crash: Callable[[str, Exception, int], None] | None = None) -> None:
        self.name = name
        self.time = time
        self.on_crash = on_crash
        self._children: dict[Child[Any], None] = {}
        self._tasks: TaskGroup | None = None
        self._stopping = anyio.Event()
        self._ended = anyio.Event()
        self._escalated: Escalated | None = None

    @property
    def is_stopping(self) -> bool:
        """True if it takes no more children: it is being stopped, escalates or has ended."""
        return self._stopping.is_set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run the children until this is stopped, is cancelled or escalates, which raises `Escalated`."""
        assert self._tasks is None, "a supervisor runs once"
        try:
            async with anyio.create_task_group() as self._tasks:
                try:
                    for child in list(self._children):
                        self._start_task(child)
                    task_status.started()
                    await self._stopping.wait()
                finally:
                    # Once it is being left, a task group may close at any time: it is given no more children.
                    self._stopping.set()
        finally:
            self._end()
        if self._escalated is not None:
            raise self._escalated

    def start(
        self,
        name: str,
        make: Callable[[int], Actor[M]],
        *,
        policy: RestartPolicy | None = None,
        given_up: Callable[[Exception], Awaitable[None]] | None = None,
        done: Callable[[], None] | None = None,
    ) -> ActorRef[M]:
        """Start a child. The reference stays valid when the child is restarted.

        `make` is called with the number of restarts and returns a new actor. It is called here for the first time, so
        that its error is raised here; a later error of it is a crash. Messages that an actor tells itself while it is
        made come before those that wait in the mailbox.

        A child ends in one of four ways: it has stopped and nothing is left to process, then `done` is called; it
        crashed too often, then `given_up` is awaited while the mailbox still accepts messages; without `given_up`,
        or when one of these functions raises, the supervisor escalates; or the supervisor is cancelled.

        Raises `ActorStopped` when the supervisor is stopping or has ended.
        """
        return Child(self, name, make, policy=policy, given_up=given_up, done=done).ref

    async def stop(self, grace_ms: int) -> None:
        """Stop all children, wait until they have processed their mailboxes, and let `run` return.

        Those that are not done after `grace_ms` are cancelled. Not for a child to call: it would wait for itself.
        """
        self._stopping.set()
        for child in list(self._children):
            child.stop()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_at, self.time.now() + grace_ms)
            await self._ended.wait()
            tasks.cancel_scope.cancel()

    def _adopt(self, child: "Child[Any]") -> None:
        self._children[child] = None
        if self._tasks is not None:
            self._start_task(child)

    def _start_task(self, child: "Child[Any]") -> None:
        assert self._tasks is not None, "children run in the task group"
        self._tasks.start_soon(self._keep, child, name=f"{self.name}/{child.name}")

    async def _cancel_at(self, at: int) -> None:
        await self.time.sleep_until(at)
        if self._tasks is None:
            self._end()
        else:
            self._tasks.cancel_scope.cancel()

    async def _keep(self, child: "Child[Any]") -> None:
        failed: Exception | None = None
        rest: BaseException | None = None
        try:
            await child.live()
        except BaseException as error:
            failed, rest = _split(error)
        if failed is not None:
            self._escalate(child, failed)
        del self._children[child]
        child.end(failed)
        if rest is not None:
            raise rest

    def _escalate(self, child: "Child[Any]", cause: Exception) -> None:
        assert self._tasks is not None, "a child that escalates runs in the task group"
        if self._escalated is None:
            self._escalated = Escalated(self.name, child.name)
            self._escalated.__cause__ = cause
        self._stopping.set()
        self._tasks.cancel_scope.cancel()

    def _end(self) -> None:
        self._stopping.set()
        for child in list(self._children):
            child.end(None)
        self._children.clear()
        self._ended.set()


class Child(Generic[M]):
    """One child of a supervisor, which starts as it is made. Incarnations come and go; the mailbox stays.

    For the directory: `ended` is called at the end, whatever the reason, when the mailbox has been closed; a child that
    `starts_afresh` begins again, its crashes forgotten, if messages wait after it was given up.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        name: str,
        make: Callable[[int], Actor[M]],
        *,
        policy: RestartPolicy | None,
        given_up: Callable[[Exception], Awaitable[None]] | None,
        done: Callable[[], None] | None = None,
        ended: "Callable[[Child[M]], None] | None" = None,
        starts_afresh: bool = False,
    ) -> None:
        if supervisor.is_stopping:
            raise ActorStopped(name)
        self.name = name
        self.actor = make(0)
        self.actor._supervise(None)
        self._make = make
        self._time = supervisor.time
        self._policy = policy or RestartPolicy()
        self._on_crash = supervisor.on_crash
        self._given_up = given_up
        self._done = done
        self._ended = ended
        self._starts_afresh = starts_afresh
        self._restarts = 0
        self._crashes: list[int] = []
        self._backoff: anyio.CancelScope | None = None
        supervisor._adopt(self)

    @property
    def ref(self) -> ActorRef[M]:
        """A reference to the child. All are equal, whatever incarnation they were made from."""
        return self.actor.ref

    def stop(self) -> None:
        """Accept nothing more, process the mailbox, and end. A backoff is cut short."""
        self.actor.stop()
        if self._backoff is not None:
            self._backoff.cancel()

    async def live(self) -> None:
        """Run one incarnation after the other to the end of the child. Raises an error that must be escalated."""
        crash = await self._run_incarnation(None)
        while crash is not None and not self._is_over():
            if len(self._crashes) <= self._policy.restarts_max:
                await self._back_off()
                if self._is_over():
                    break
                self._restarts += 1
            elif self._given_up is None:
                raise crash
            else:
                await self._given_up(crash)
                # No other task runs between this check and the closing of the mailbox, so no message slips in.
                if not (self._starts_afresh and len(self.actor.mailbox)):
                    self.end(crash)
                    return
                self._restarts, self._crashes = 0, []
                await checkpoint()
            crash = await self._run_incarnation(self.actor)
        self.end(None)
        if self._done is not None:
            self._done()

    def end(self, cause: Exception | None) -> None:
        """Answer waiting askers. Ending again changes nothing."""
        self.actor._end(cause)
        if self._ended is not None:
            self._ended(self)

    async def _run_incarnation(self, predecessor: Actor[M] | None) -> Exception | None:
        """Run the actor, or a successor of it, and return the error that it crashed with."""
        crash: Exception | None = None
        rest: BaseException | None = None
        try:
            if predecessor is not None:
                actor = self._make(self._restarts)
                actor._supervise(predecessor)
                self.actor = actor
            await self.actor.run()
        except BaseException as error:
            crash, rest = _split(error)
        if crash is not None:
            self._note(crash)
        if rest is not None:
            raise rest
        return crash

    def _is_over(self) -> bool:
        """Return True if nothing is left to process and nothing can come."""
        return self.actor.mailbox.is_closed and not len(self.actor.mailbox)

    def _note(self, crash: Exception) -> None:
        now = self._time.now()
        self._crashes = [at for at in self._crashes if now - self._policy.within_ms <= at <= now]
        self._crashes.append(now)
        self.actor._fail_taken(crash)
        logger.error("actor %r crashed after %d restarts: %r", self.name, self._restarts, crash, exc_info=crash)
        if self._on_crash is not None:
            self._on_crash(self.name, crash, self._restarts)

    async def _back_off(self) -> None:
        wait_ms = doubled_ms(self._policy.backoff_ms, self._policy.backoff_max_ms, len(self._crashes))
        with anyio.CancelScope() as self._backoff:
            await self._time.sleep_until(self._time.now() + wait_ms)
        self._backoff = None


def _split(error: BaseException) -> tuple[Exception | None, BaseException | None]:
    """Return the failure, and the rest that must be raised: a cancellation, an interrupt.

    A task group raises both at once when something fails while it is cancelled.
    """
    failed: BaseException | None = error
    rest: BaseException | None = None
    if isinstance(error, BaseExceptionGroup):
        failed, rest = error.split(Exception)
    while isinstance(failed, BaseExceptionGroup) and len(failed.exceptions) == 1:
        failed = failed.exceptions[0]
    return (failed, rest) if isinstance(failed, Exception) else (None, error)
