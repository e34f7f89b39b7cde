"""Choose the telemetry of a runtime, and protect the runtime from its errors."""

import logging
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, TypeAlias

from keep_actors.kernel.foreign_code import attempt
from keep_actors.telemetry.names import CRASHED, CUT_OFF
from keep_actors.telemetry.otel import OpenTelemetry
from keep_actors.telemetry.protocol import NO_TELEMETRY, AttributeValue, NoTelemetry, Span, Telemetry

log = logging.getLogger("keep_actors.telemetry")

Wanted: TypeAlias = Telemetry | list[Telemetry] | tuple[Telemetry, ...] | Literal["auto"] | None


def chosen(wanted: Wanted) -> Telemetry:
    """Return the telemetry to use. `"auto"` is OpenTelemetry if it is installed, else none."""
    parts: list[Telemetry] = []
    match wanted:
        case None:
            pass
        case "auto":
            with suppress(ImportError):
                parts = [OpenTelemetry()]
        case list() | tuple():
            parts = [*wanted]
        case _:
            parts = [wanted]
    for part in parts:
        assert hasattr(part, "span"), f"a telemetry, a list of them, 'auto' or None; not {part!r}"
    parts = [part for part in parts if not isinstance(part, NoTelemetry)]
    return Guarded(*parts) if parts else NO_TELEMETRY


class Guarded:
    """Pass everything to each of its parts. The first error of a part is logged; no error reaches the runtime."""

    def __init__(self, *parts: Telemetry) -> None:
        self._parts = [_Part(each) for each in parts]

    def span(self, name: str, /, **attributes: AttributeValue) -> Span:
        made = [(part, part.tried(part.telemetry, "span", name, **attributes)) for part in self._parts]
        return _Spans([(part, span) for part, span in made if span is not None])

    def count(self, name: str, amount: int = 1, /, **labels: str) -> None:
        for part in self._parts:
            part.tried(part.telemetry, "count", name, amount, **labels)

    def observe(self, name: str, value: int, /, **labels: str) -> None:
        for part in self._parts:
            part.tried(part.telemetry, "observe", name, value, **labels)


class _Part:
    def __init__(self, telemetry: Telemetry) -> None:
        self.telemetry = telemetry
        self._is_blamed = False

    def tried(self, whose: object, method: str, /, *arguments: Any, **named: Any) -> Any:
        """Call a method of the telemetry, or of one of its spans. Return None if it raises."""
        result: Any = None
        with attempt() as tried:
            result = getattr(whose, method)(*arguments, **named)
        if tried.error is not None and not self._is_blamed:
            self._is_blamed = True
            name = type(self.telemetry).__name__
            log.warning("The telemetry (%s) fails. Runs go on; this is said once.", name, exc_info=tried.error)
        return result


class _Spans:
    """One span in each part. A span that did not begin does not end."""

    def __init__(self, made: list[tuple[_Part, Span]]) -> None:
        self._made = made
        self._begun: list[tuple[_Part, Span, Span]] = []
        self._has_outcome = False

    def __enter__(self) -> "_Spans":
        for part, each in self._made:
            # The result of `__enter__` has `ends`, so a part may be written with `contextmanager`.
            if (span := part.tried(each, "__enter__")) is not None:
                self._begun.append((part, each, span))
        return self

    def ends(self, outcome: str, failure: str = "", /) -> None:
        self._has_outcome = True
        for part, _, span in self._begun:
            part.tried(span, "ends", outcome, failure)

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None, /
    ) -> None:
        if error is not None and not self._has_outcome:
            self.ends(CRASHED if isinstance(error, Exception) else CUT_OFF)
        for part, each, _ in reversed(self._begun):
            # Without the error: its words may quote a payload.
            part.tried(each, "__exit__", None, None, None)
