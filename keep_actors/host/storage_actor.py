"""The one writer: every change to the execution model passes through here, and an answer means it is durable.

While one commit is in the thread, whatever arrives waits in the mailbox and becomes the next one. There is no
timer: alone, an operation waits for no other; in a crowd, many share one fsync.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from keep_actors.host.fault_points import Faults, Point, no_faults
from keep_actors.kernel import Actor, ActorRef, Question, Thread, WorkerThread
from keep_actors.telemetry import NO_TELEMETRY, Telemetry, names
from keep_storage.errors import StorageUnavailable
from keep_storage.operations import Done, Operation, OperationOutcome

T = TypeVar("T")


class CommitStore(Protocol):
    """The part of the storage that the actor needs."""

    def commit(self, batch: Sequence[Operation[Any]], /) -> Sequence[OperationOutcome]:
        """Apply the batch durably and return one outcome per operation, in order. Blocks.

        Raises `StorageUnavailable` when the commit failed as a whole.
        """
        ...


class Apply(Question[T]):
    """The message: apply this operation and answer when it is durable."""

    def __init__(self, operation: Operation[T]) -> None:
        self.operation = operation


class StorageRef(ActorRef[Apply[Any]]):
    """The reference for all changes of the execution model."""

    __slots__ = ()

    async def apply(self, operation: Operation[T]) -> T:
        """Apply one operation and return its answer once it is durable.

        It did not happen when this raises `Rejected`, what the operation itself raised, `StorageUnavailable`,
        `MailboxFull` or `ActorStopped`. `StorageLost` and `ActorDied` leave that open. A caller that is
        cancelled does not take the operation back.
        """
        return await self.ask(Apply(operation))


class StorageActor(Actor[Apply[Any]]):
    """Hands what has arrived to `store.commit`, one batch at a time, and answers each caller.

    `commits` and `operations` count what was committed; `on_commit` is called after each commit.
    """

    def __init__(
        self,
        store: CommitStore,
        *,
        name: str = "storage",
        batch_ops_max: int = 1024,
        mailbox_capacity: int = 10_000,
        thread: Thread | None = None,
        on_commit: Callable[[], None] | None = None,
        telemetry: Telemetry = NO_TELEMETRY,
        faults: Faults = no_faults,
    ) -> None:
        super().__init__(name, mailbox_capacity=mailbox_capacity)
        assert batch_ops_max > 0, "a commit applies at least one operation"
        self.commits = 0
        self.operations = 0
        self._store = store
        self._batch_ops_max = batch_ops_max
        self._thread = thread or WorkerThread()
        self._on_commit = on_commit
        self._telemetry = telemetry
        self._reach = faults

    @property
    def ref(self) -> StorageRef:
        return StorageRef(self)

    async def receive(self, message: Apply[Any]) -> None:
        batch = [message, *self.mailbox.take_many(self._batch_ops_max - 1)]
        operations = [apply.operation for apply in batch]
        try:
            self._reach(Point.COMMIT, self.name)
            outcomes = await self._thread.run(self._store.commit, operations)
        except StorageUnavailable as error:
            # The store knows whether it can go on; the actor asks it again with the next batch.
            for apply in batch:
                apply.fail(_same_for_another_caller(error))
            return
        self._reach(Point.COMMITTED, self.name)
        assert len(outcomes) == len(batch), "the store owes one outcome per operation"
        self.commits += 1
        self.operations += len(batch)
        self._telemetry.observe(names.COMMIT_OPERATIONS.name, len(batch))
        for apply, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Done):
                apply.answer(outcome.answer)
            else:
                apply.fail(outcome.error)
        if self._on_commit is not None:
            self._on_commit()


def _same_for_another_caller(error: StorageUnavailable) -> StorageUnavailable:
    # An exception collects the traceback of whoever raises it, so callers do not share one.
    own = copy.copy(error)
    own.__cause__ = error
    return own
