"""The runtime's side of telemetry. Called from the event loop: keep or queue, never wait."""

from types import TracebackType
from typing import Final, Protocol, TypeAlias

AttributeValue: TypeAlias = str | int


class Span(Protocol):
    """A piece of work, for the length of a `with` block."""

    def __enter__(self) -> "Span": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def ends(self, outcome: str, failure: str = "", /) -> None:
        """Say the outcome, and the class of failure if it is one. Called once, before the block ends."""


class Telemetry(Protocol):
    """Spans and metrics, by the names of `keep_actors.telemetry.names`. `OpenTelemetry` is the one of the product."""

    def span(self, name: str, /, **attributes: AttributeValue) -> Span:
        """Begin with the `with` block: a child of the current span of this task, or of the task that started it."""
        ...

    def count(self, name: str, amount: int = 1, /, **labels: str) -> None:
        """Add to a counter or a level."""

    def observe(self, name: str, value: int, /, **labels: str) -> None:
        """Add a value to a distribution."""


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
    """Keep nothing, at next to no cost."""

    __slots__ = ()

    def span(self, name: str, /, **_: AttributeValue) -> Span:  # noqa: ARG002
        return NO_SPAN

    def count(self, name: str, amount: int = 1, /, **_: str) -> None:
        pass

    def observe(self, name: str, value: int, /, **_: str) -> None:
        pass


NO_TELEMETRY: Final = NoTelemetry()
