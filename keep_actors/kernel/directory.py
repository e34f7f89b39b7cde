"""Actors by key, started by the first message for a key and let go when they are idle.

Only active actors cost anything: an idle key has no task and no memory. For one key at most one actor takes messages,
and no message is lost: it is accepted, or its sender gets an error.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from keep_actors.kernel.actor import Actor
from keep_actors.kernel.question import Question
from keep_actors.kernel.supervisor import Child, RestartPolicy, Supervisor

M = TypeVar("M")
T = TypeVar("T")


class Directory(Generic[M]):
    """Active actors by key. `make(key, restarts)` returns a new actor.

    An error of `make` for the first incarnation is raised in the sender, and no actor is active then.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        make: Callable[[str, int], Actor[M]],
        *,
        policy: RestartPolicy | None = None,
        given_up: Callable[[str, Exception], Awaitable[None]] | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._make = make
        self._policy = policy
        self._given_up = given_up
        self._active: dict[str, Child[M]] = {}
        self._emptied: anyio.Event | None = None

    def __len__(self) -> int:
        """The number of active actors, including those that wait for a restart."""
        return len(self._active)

    def is_active(self, key: str) -> bool:
        """Return True if there is an actor for this key, or one that waits for a restart."""
        return key in self._active

    def waiting(self, key: str) -> list[M]:
        """The messages that wait for the actor of this key, the next one first."""
        child = self._active.get(key)
        return [] if child is None else list(child.actor.mailbox)

    def tell(self, key: str, message: M) -> None:
        """Send a message and do not wait. Raises `MailboxFull` or `ActorStopped` when it is not accepted."""
        self._child(key).ref.tell(message)

    async def ask(self, key: str, question: Question[T], *, timeout_ms: int | None = None) -> T:
        """Send a question and wait for its answer. Raises as `ActorRef.ask` does."""
        return await self._child(key).ref.ask(question, timeout_ms=timeout_ms)

    def passivate(self, key: str, actor: Actor[M]) -> bool:
        """Let the actor of this key go, if no message waits for it: its `run` returns after this `receive`.

        Called by the actor itself, from `receive`, as the last thing before it returns, and only with nothing in
        hand: no task that still works for the key, no question kept for later. The key is free at once, so the next
        message may start a new actor before the `run` of this one has returned. Returns False if messages wait:
        then nothing happens and the actor goes on.
        """
        child = self._active.get(key)
        assert child is not None, "an actor passivates once"
        assert child.actor is actor, "an actor passivates itself"
        if len(actor.mailbox):
            return False
        actor.stop()
        self._remove(child)
        return True

    async def wait_empty(self) -> None:
        """Return once no actor is active."""
        if not self._active:
            await checkpoint()
        while self._active:
            if self._emptied is None:
                self._emptied = anyio.Event()
            await self._emptied.wait()

    def _child(self, key: str) -> Child[M]:
        child = self._active.get(key)
        if child is None:
            child = self._active[key] = Child(
                self._supervisor,
                key,
                partial(self._make, key),
                policy=self._policy,
                given_up=None if self._given_up is None else partial(self._given_up, key),
                ended=self._remove,
                starts_afresh=True,
            )
        return child

    def _remove(self, child: Child[M]) -> None:
        # A passivated actor ends after its removal: by then the key may belong to another.
        if self._active.get(child.name) is not child:
            return
        del self._active[child.name]
        if not self._active and self._emptied is not None:
            self._emptied.set()
            self._emptied = None
