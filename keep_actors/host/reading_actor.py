"""Reads, away from the event loop: what has been asked for meanwhile crosses to the thread as one batch.

Every function of a batch sees the same moment, and whatever was committed before it was asked.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from keep_actors.kernel import Actor, ActorRef, Question, Thread, WorkerThread
from keep_storage.errors import StorageError
from keep_storage.transaction import Queries, Reader

T = TypeVar("T")


class Read(Question[T]):
    """The message: call this function with the database and answer with what it returns."""

    def __init__(self, function: Callable[[Queries], T]) -> None:
        self.function = function


class ReadingRef(ActorRef[Read[Any]]):
    """The reference for all readers."""

    __slots__ = ()

    async def read(self, function: Callable[[Queries], T]) -> T:
        """Call the function where the database is, and return what it returns."""
        return await self.ask(Read(function))


class ReadingActor(Actor[Read[Any]]):
    """Owns a reader's connection. `thread` must be the writer's own for a database in memory: they share it."""

    def __init__(
        self, reader: Reader, *, name: str = "reading", mailbox_capacity: int = 1_000_000, thread: Thread | None = None
    ) -> None:
        super().__init__(name, mailbox_capacity=mailbox_capacity)
        self._reader = reader
        self._thread = thread or WorkerThread()

    @property
    def ref(self) -> ReadingRef:
        return ReadingRef(self)

    async def receive(self, message: Read[Any]) -> None:
        batch = [message, *self.mailbox.take_many(255)]
        try:
            results = await self._thread.run(self._read, [each.function for each in batch])
        except StorageError as error:
            for question in batch:
                question.fail(copy.copy(error))
            return
        for question, result in zip(batch, results, strict=True):
            if isinstance(result, _Raised):
                question.fail(result.error)
            else:
                question.answer(result)

    def _read(self, functions: Sequence[Callable[[Queries], Any]]) -> list[Any]:
        with self._reader.snapshot():
            return [_call(function, self._reader) for function in functions]


class _Raised:
    def __init__(self, error: Exception) -> None:
        self.error = error


def _call(function: Callable[[Queries], Any], reader: Reader) -> Any:
    try:
        return function(reader)
    except Exception as error:  # it is the asker's: the others of the batch have nothing to do with it
        return _Raised(error)
