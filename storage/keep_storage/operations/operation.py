"""An operation, its answer, and several of them as one."""

from typing import Any, Generic, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)


class Operation(msgspec.Struct, Generic[T_co], frozen=True):
    """A change to the execution model, answered with a `T`."""


class Together(Operation[tuple[Any, ...]], frozen=True):
    """Several operations as one: in order, all or none, answered with a tuple."""

    operations: tuple[Operation[Any], ...]


class Done(msgspec.Struct, Generic[T_co], frozen=True):
    """The operation happened, and is durable."""

    answer: T_co

    def unwrap(self) -> T_co:
        return self.answer


class OperationRefused(msgspec.Struct, frozen=True):
    """The operation did not happen: `Rejected`, or a bug that raised inside it."""

    error: Exception

    def unwrap(self) -> Any:
        raise self.error


OperationOutcome = Done[Any] | OperationRefused
