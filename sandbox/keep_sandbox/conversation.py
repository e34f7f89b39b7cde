"""The host's side of one invocation: the frames that a worker may send, and their meaning. Pure.

A script may have taken its worker over, so anything that an honest worker never sends is a `Violation`: a wrong call
number, an id that does not count up by one, a kind that is not the method's, more requests, log lines or bytes than
allowed, text that is not JSON, a script that waits for nothing, a frame after the end.
"""

from typing import Final, assert_never

from keep_sandbox.invocation import Capabilities
from keep_sandbox.json_text import UnfitText, check_json
from keep_sandbox.limits import SCRIPT_LINES_MAX, Limits
from keep_sandbox.outcomes import InvocationEnd, IssuedMutation, Kind, Outcome, Place, Request, Value
from keep_sandbox.protocol import EndedFrame, FromWorker, Logged, Ready, RequestFrame, Waits

ERROR_TEXTS_MAX: Final = 5
"""An error text may have this many times `error_chars`: a stack is cut first, and then its lines become longer."""


class Violation(Exception):
    """The worker sent a frame that an honest worker never sends. Kill it."""


class Conversation:
    """The state of one call at the host. `receive` takes each frame in turn."""

    def __init__(self, call: int, capabilities: Capabilities, limits: Limits) -> None:
        self.logs: list[str] = []
        self._call = call
        self._limits = limits
        self._terminal_mutations = capabilities.mutation_is_terminal
        self._allowed = allowed_requests(capabilities)
        self._last_id = 0
        self._unanswered: set[int] = set()
        self._turns = 1
        self._bytes = 0
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """True once the end was received."""
        return self._is_over

    def receive(self, frame: FromWorker, size: int = 0) -> Outcome | None:
        """Return the outcome of a frame of `size` bytes; None for the end of a turn, and for a log line, which is kept.

        Raises `Violation`.
        """
        if self._is_over:
            raise Violation("a frame after the end")
        self._bytes += size
        if self._bytes > self._limits.invocation_bytes:
            raise Violation("more bytes than allowed")
        match frame:
            case RequestFrame():
                self._check_call(frame.call)
                return self._asked(frame)
            case Logged():
                self._check_call(frame.call)
                self._logged(frame)
                return None
            case Waits():
                self._check_call(frame.call)
                self._waits()
                return None
            case EndedFrame():
                self._check_call(frame.call)
                self._check_ending(frame.ending)
                self._is_over = True
                return frame.ending
            case Ready():
                raise Violation("Ready during an invocation")
            case _:
                assert_never(frame)

    def answered(self, request_id: int) -> bool:
        """Note that a request gets its answer now, which begins a turn. Returns False if it does not wait for one."""
        if request_id not in self._unanswered or self._is_over:
            return False
        self._unanswered.remove(request_id)
        self._turns += 1
        return True

    def _check_call(self, call: int) -> None:
        if call != self._call:
            raise Violation(f"a frame of call {call} during call {self._call}")

    def _check_value(self, text: str) -> None:
        try:
            check_json(text, self._limits)
        except UnfitText as error:
            raise Violation(str(error)) from None

    def _check_ending(self, ending: InvocationEnd) -> None:
        if isinstance(ending, Value):
            self._check_value(ending.value)
            return
        # The text is stored and shown to people: allow no more of it than an honest worker sends.
        for name in ("name", "message", "path", "stack"):
            if len(getattr(ending, name, "")) > ERROR_TEXTS_MAX * self._limits.error_chars:
                raise Violation("an error text longer than allowed")
        place: Place | None = getattr(ending, "place", None)
        if place is not None and not (0 <= place.line <= SCRIPT_LINES_MAX and 0 <= place.column < 2**31):
            raise Violation("a place outside any script")

    def _asked(self, frame: RequestFrame) -> Outcome:
        if frame.id != self._last_id + 1:
            raise Violation(f"request {frame.id} after request {self._last_id}")
        if frame.id > self._limits.host_calls:
            raise Violation("more requests than allowed")
        if (frame.kind, frame.name) not in self._allowed:
            raise Violation(f"a request that was not offered: {frame.kind} {frame.name[:80]!r}")
        self._check_value(frame.params)
        self._last_id = frame.id
        if frame.kind is Kind.MUTATION and self._terminal_mutations:
            self._is_over = True
            return IssuedMutation(id=frame.id, name=frame.name, params=frame.params)
        self._unanswered.add(frame.id)
        return Request(id=frame.id, kind=frame.kind, name=frame.name, params=frame.params)

    def _waits(self) -> None:
        self._turns -= 1
        # The time of a script that waits does not count, so it must wait for something that will come.
        if self._turns < 0 or (self._turns == 0 and not self._unanswered):
            raise Violation("it waits for nothing")

    def _logged(self, frame: Logged) -> None:
        if len(self.logs) >= self._limits.log_lines or len(frame.line) > self._limits.log_line_chars:
            raise Violation("more log lines, or a longer one, than allowed")
        self.logs.append(frame.line)


def allowed_requests(capabilities: Capabilities) -> set[tuple[Kind, str]]:
    """The requests that these capabilities offer, as kind and name."""
    allowed: set[tuple[Kind, str]] = set()
    for kind, name, offered in (
        (Kind.PEEK, "peek", capabilities.peek),
        (Kind.GET_BY_IDS, "getByIds", capabilities.get_by_ids),
        (Kind.PUBLISH, "publish", capabilities.publish),
        (Kind.ITEM_OPEN, "withItem", capabilities.with_item),
        (Kind.ITEM_CLOSE, "withItem", capabilities.with_item),
    ):
        if offered:
            allowed.add((kind, name))
    for namespace, methods in capabilities.connectors.items():
        for method, method_kind in methods.items():
            allowed.add((Kind(method_kind), f"{namespace}.{method}"))
    return allowed
