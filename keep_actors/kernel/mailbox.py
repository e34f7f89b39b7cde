"""A bounded queue with many senders and one reader.

Sending never waits: a full mailbox is an error for the sender. Waiting and taking are separate, so that a
wait may be cancelled at any point and no message is lost. Every call is made from the event loop's thread.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from anyio.lowlevel import checkpoint

from keep_actors.kernel.errors import ActorStopped, MailboxFull
from keep_actors.kernel.waiter import Waiter

M = TypeVar("M")


class Mailbox(Generic[M]):
    """At most `capacity` messages for one actor, oldest first."""

    def __init__(self, actor: str, capacity: int) -> None:
        assert capacity > 0, "a mailbox without room accepts nothing"
        self._actor = actor
        self._capacity = capacity
        self._messages: deque[M] = deque()
        self._closed = False
        self._reader = Waiter()

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[M]:
        """The messages, oldest first."""
        return iter(self._messages)

    @property
    def is_closed(self) -> bool:
        """True if it accepts nothing more."""
        return self._closed

    def put(self, message: M) -> None:
        """Accept a message, or raise `MailboxFull` or `ActorStopped`."""
        if self._closed:
            raise ActorStopped(self._actor)
        if len(self._messages) >= self._capacity:
            raise MailboxFull(self._actor, self._capacity)
        self._messages.append(message)
        self._reader.wake()

    def put_first(self, messages: Sequence[M]) -> None:
        """Put messages before all others, in their order. They are accepted even if it is full or closed."""
        self._messages.extendleft(reversed(messages))
        if messages:
            self._reader.wake()

    async def wait(self) -> bool:
        """Return True once there is a message to take, or False once the mailbox is closed and empty.

        Always a checkpoint: a busy reader still lets others run and can be cancelled.
        """
        if self._messages or self._closed:
            await checkpoint()
        while not self._messages and not self._closed:
            await self._reader.wait()
        return bool(self._messages)

    def take(self) -> M:
        """Remove and return the oldest message. There must be one: call it after `wait` returned True."""
        return self._messages.popleft()

    def take_many(self, limit: int) -> list[M]:
        """Remove and return up to `limit` messages, oldest first. The list is empty when there is none."""
        messages = self._messages
        if len(messages) <= limit:
            return self.drain()
        return [messages.popleft() for _ in range(limit)]

    def close(self) -> None:
        """Accept nothing more. Messages inside can still be taken. Closing again changes nothing."""
        self._closed = True
        self._reader.wake()

    def drain(self) -> list[M]:
        """Remove and return everything, oldest first."""
        messages = list(self._messages)
        self._messages.clear()
        return messages
