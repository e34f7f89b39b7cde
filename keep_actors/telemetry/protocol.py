"""What the runtime asks of a telemetry. Called from the event loop: it keeps or queues, and never waits."""

from types import TracebackType
from typing import Final, Protocol, TypeAlias

AttributeValue: TypeAlias = str | int


class Span(Protocol):
    """Something that takes a while, for the length of a `with` block."""

    def __enter__(self) -> "Span": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def ends(self, outcome: str, failure: str = "", /) -> None:
        """What came of it, and the class of failure if it is one. Called once, before the block ends."""


class Telemetry(Protocol):
    """Spans and metrics, by the names of `keep_actors.telemetry.names`. What is not of interest is left alone."""

    def span(self, name: str, /, **attributes: AttributeValue) -> Span:
        """Begins with the `with` block. Inside another in the same task, or in a task that it started: its child."""
        ...

    def count(self, name: str, amount: int = 1, /, **labels: str) -> None:
        """So many more, or fewer."""

    def observe(self, name: str, value: int, /, **labels: str) -> None:
        """One more value of a distribution."""


class _NoSpan:
    __slots__ = ()

    def __enter__(self) -> "_NoSpan":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ends(self, outcome: str, failure: str = "", /) -> None:
        pass


NO_SPAN: Final = _NoSpan()


class NoTelemetry:
    """Keeps nothing, and costs next to nothing."""

    __slots__ = ()

    def span(self, name: str, /, **_: AttributeValue) -> Span:  # noqa: ARG002
        return NO_SPAN

    def count(self, name: str, amount: int = 1, /, **_: str) -> None:
        pass

    def observe(self, name: str, value: int, /, **_: str) -> None:
        pass


NO_TELEMETRY: Final = NoTelemetry()
