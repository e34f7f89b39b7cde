"""What a workflow actor is told and asked. A closed union."""

from typing import Any, TypeAlias, TypeVar

import msgspec

from keep_actors.kernel import Question
from keep_sandbox.declaration import Declaration
from keep_storage.model import ScriptVersion
from keep_storage.operations import Operation

T = TypeVar("T")


class Tick(msgspec.Struct, frozen=True):
    """Look whether there is something to do: an alarm rang, or the runtime has just started."""


class RunEnded(msgspec.Struct, frozen=True):
    """From the task of a run to its own actor: it is over, whatever came of it."""

    run_id: str


class Do(Question[T]):
    """Apply this operation for a person or for the embedding service, at once, whatever is under way."""

    def __init__(self, operation: Operation[T]) -> None:
        self.operation = operation


class Advance(Question[tuple[Any, ...]]):
    """From the task of a run to its own actor: these transitions, together."""

    def __init__(self, run_id: str, operations: tuple[Operation[Any], ...]) -> None:
        self.run_id = run_id
        self.operations = operations


class Deploy(Question[ScriptVersion]):
    """Make this script the one that runs, as soon as no run is under way."""

    def __init__(
        self, source: str, declaration: Declaration, *, timezone: str, is_major: bool, start: bool, by: str
    ) -> None:
        self.source = source
        self.declaration = declaration
        self.timezone = timezone
        self.is_major = is_major
        self.start = start
        self.by = by


Message: TypeAlias = Tick | RunEnded | Do[Any] | Advance | Deploy
