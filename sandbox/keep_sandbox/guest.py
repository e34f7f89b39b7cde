"""One invocation in the engine: a `Guest` runs one handler once, in a memory of its own that begins as an image.

Synchronous and deterministic: the same invocation and the same answers give the same trace and use the same fuel. The
script's requests, log lines and end go to a `LogSink`, as text and typed values.
"""

import re
from typing import Final, Literal, Protocol

import msgspec

from keep_sandbox.engine import LINE_AFTER_SCRIPTS, Engine, Known
from keep_sandbox.images import ScriptImage
from keep_sandbox.invocation import Invocation
from keep_sandbox.limits import SCRIPT_LINES_MAX, Limits
from keep_sandbox.outcomes import (
    CallLimit,
    CpuLimit,
    Deadlock,
    InvalidValue,
    InvocationEnd,
    Kind,
    MemoryLimit,
    Place,
    ScriptError,
    SizeLimit,
    StackLimit,
    Value,
)
from keep_sandbox.shim import (
    BEGIN_HEAD,
    LOAD_HEAD,
    OutboxEntry,
    Said,
    Say,
    Seen,
    ShimResult,
    UnexpectedTrap,
    empty_outbox,
    entries,
    outbox,
    put,
    said_in,
    text_of,
)
from keep_sandbox.wasm import Instance, TrapCode, Trapped

_WHERE_FUEL: Final = 5_000_000
_STACK_MARGIN: Final = 65_536
_JSON_PARSE: Final = "at parse (native)"
_FRAME: Final = re.compile(r"^\s*at (?:(.{1,200}?) \()?<input>:(\d{1,9}):(\d{1,9})\)?$")

_KINDS: Final = {each.value: each for each in Kind}
_encode = msgspec.json.Encoder().encode


class LogSink(Protocol):
    """Receives the output of a guest. It must not raise."""

    def request(self, request_id: int, kind: Kind, name: str, params: str, /) -> None:
        """The script asks for something."""

    def log(self, line: str, /) -> None:
        """The script wrote a line."""

    def end(self, ending: InvocationEnd, /) -> None:
        """The script has ended. No further calls follow."""


class Guest:
    """One invocation: `run` or `declare` once, then `answer` until `ended`, then `close`."""

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self._engine = engine
        self._limits = limits
        self._sink: LogSink | None = None
        self._instance: Instance | None = None
        self._phase: Literal["load", "run"] = "load"
        self._mutation_ends = True
        self._asked: set[int] = set()
        self._log_lines = 0
        self.ended = False

    @property
    def fuel_left(self) -> int:
        """The fuel that is left of this phase; 0 without an instance."""
        return self._instance.fuel if self._instance is not None else 0

    def run(self, invocation: Invocation, sink: LogSink) -> None:
        """Load the script and call the handler. Returns when the script has ended or waits for answers."""
        self._sink = sink
        self._mutation_ends = invocation.capabilities.mutation_is_terminal
        if not self._load(invocation.source, invocation.now_ms, invocation.seed):
            return
        capabilities, address = _encode(invocation.capabilities), _encode(invocation.address)
        args = invocation.args.encode()
        limits = self._limits
        head = BEGIN_HEAD.pack(
            invocation.now_ms,
            invocation.seed & 0xFFFFFFFF,
            limits.heap_bytes,
            limits.js_stack_bytes,
            limits.host_calls,
            self._mutation_ends,
            len(capabilities),
            len(address),
            len(args),
        )
        self._phase = "run"
        self._step("begin", head + capabilities + address + args)

    def declare(self, source: str, sink: LogSink) -> None:
        """Load the script and report its declaration, as a value. No handler is called."""
        self._sink = sink
        if self._load(source, 0, 0):
            declare = self._engine.declare_source
            self._step("declare", declare, len(declare), LINE_AFTER_SCRIPTS)

    def answer(self, request_id: int, value: str) -> None:
        """Settle a request with a value (JSON text), and let the script go on."""
        if request_id in self._asked and not self.ended:
            self._asked.remove(request_id)
            data = value.encode()
            self._step("settle", data, request_id, len(data), has_fuel=True)

    def close(self) -> None:
        """End the guest, and restore the memory of its instance."""
        self.ended = True
        self._sink = None
        if self._instance is not None:
            self._engine.give_back(self._instance)
            self._instance = None

    # Loading.

    def _load(self, source: str, now_ms: int, seed: int) -> bool:
        """Get an instance in which the script is loaded. Returns False if the script has ended meanwhile."""
        known = self._engine.known(source, self._limits)
        if known is None:
            unfit = why_unfit(source, self._limits)
            if unfit is not None:
                self._end(unfit)
                return False
            known = self._first_image(source)
        self._instance = self._engine.take()
        if known.image is not None:
            known.image.write(self._instance)
        else:
            self._step("load", self._load_input(source, now_ms, seed))
        return not self.ended

    def _first_image(self, source: str) -> Known:
        """Load a script on trial, and make its image, unless its top level has effects or does not load."""
        engine = self._engine
        instance = engine.take()
        result, _ = self._enter(instance, "load", self._load_input(source, 0, 0))
        known = Known(None)
        if result == ShimResult.LOADED:
            # The top level saw neither the time nor a random number, so that this is its state at any time.
            image = ScriptImage(engine.prelude, instance, engine.seen(instance).heap_top)
            known = engine.keep(source, self._limits, image)
        elif result == ShimResult.LOADED_TOUCHED:
            known = engine.keep(source, self._limits, None)
        engine.give_back(instance)
        return known

    def _load_input(self, source: str, now_ms: int, seed: int) -> bytes:
        limits = self._limits
        text, about = source.encode(), _encode(limits)
        head = LOAD_HEAD.pack(
            now_ms, seed & 0xFFFFFFFF, limits.heap_bytes, limits.js_stack_bytes, len(about), len(text)
        )
        return head + about + text

    # Running.

    def _enter(self, instance: Instance, export: str, data: bytes, *arguments: int) -> tuple[int, Trapped | None]:
        """Give the instance all fuel of a phase, and call an export with this input."""
        instance.fuel = self._limits.fuel
        return self._go_on(instance, export, data, *arguments)

    def _go_on(self, instance: Instance, export: str, data: bytes, *arguments: int) -> tuple[int, Trapped | None]:
        try:
            return (instance.call(export, *arguments) if put(instance, data) else ShimResult.FAILED), None
        except Trapped as trap:
            # Most scripts end by a trap. With its traceback it would be a cycle, and hold this memory for long.
            return ShimResult.FAILED, trap.with_traceback(None)

    def _step(self, export: str, data: bytes, *arguments: int, has_fuel: bool = False) -> None:
        """Enter the engine once. Afterwards the script has ended, waits, or is loaded."""
        instance = self._instance
        assert instance is not None, "a guest has an instance while it runs"
        enter = self._go_on if has_fuel else self._enter
        result, trap = enter(instance, export, data, *arguments)
        seen = self._engine.seen(instance)
        is_stopped = trap is not None and trap.code is TrapCode.UNREACHABLE and bool(seen.is_stopped)
        is_whole = trap is None or is_stopped
        for entry in entries(outbox(instance, seen, is_whole=is_whole), is_whole=is_whole):
            self._hear(entry, seen)
            if self.ended:
                return
        empty_outbox(instance, self._engine.seen_at)
        if trap is not None and not is_stopped:
            self._end(self._limit_of(trap, instance))
        elif result == ShimResult.FAILED or (result == ShimResult.STUCK and seen.is_full):
            # There was no memory even for an error, or for the input.
            self._end(MemoryLimit())
        elif result == ShimResult.STUCK:
            self._end(Deadlock())
        elif result == ShimResult.ENDED:
            raise UnexpectedTrap("the script has ended without a word")

    def _limit_of(self, trap: Trapped, instance: Instance) -> InvocationEnd:
        """The limit that a trap stands for."""
        if trap.code is TrapCode.OUT_OF_FUEL:
            return CpuLimit(place=self._where(instance))
        # The stack of the guest ends at address 0, and an address below it is outside of the memory.
        is_in_stack = _STACK_MARGIN < instance.stack_pointer <= instance.stack_top
        if trap.code is TrapCode.STACK_OVERFLOW or (trap.code is TrapCode.MEMORY_OUT_OF_BOUNDS and not is_in_stack):
            return StackLimit(place=self._where(instance))
        raise UnexpectedTrap(str(trap))

    def _where(self, instance: Instance) -> Place | None:
        """The place that a trap stopped at, if the engine can still tell."""
        instance.fuel = _WHERE_FUEL
        try:
            instance.call("where")
        except Trapped:
            return None
        for entry in entries(outbox(instance, self._engine.seen(instance), is_whole=False), is_whole=False):
            if entry.kind == Say.FAIL:
                return author_stack(said_in(entry.texts[0]).stack)[1]
        return None

    # Hearing the script.

    def _hear(self, entry: OutboxEntry, seen: Seen) -> None:
        first, second, third = entry.texts
        match entry.kind:
            case Say.REQUEST:
                self._request(entry.number, _KINDS.get(text_of(first)), text_of(second), third)
            case Say.LOG:
                self._log(text_of(first))
            case Say.DONE:
                is_too_large = len(first) > self._limits.value_bytes
                self._end(
                    self._too_large() if is_too_large else Value(value=text_of(first), is_given=entry.number == 1)
                )
            case Say.FAIL:
                self._fail(said_in(first), seen)
            case Say.EXCEPTION:
                self._end(self._ending_of(text_of(first), text_of(second), seen))
            case Say.CALL_LIMIT:
                self._end(CallLimit(limit=self._limits.host_calls))
            case _:
                raise UnexpectedTrap(f"an entry of kind {entry.kind} in the outbox")

    def _request(self, request_id: int, kind: Kind | None, name: str, params: bytes) -> None:
        assert self._sink is not None, "a guest speaks after it was given a sink"
        if kind is None:
            raise UnexpectedTrap("a request of no kind")
        if len(params) > self._limits.value_bytes:
            self._end(self._too_large())
            return
        self._sink.request(request_id, kind, name, text_of(params))
        if kind is Kind.MUTATION and self._mutation_ends:
            self.ended = True
            return
        self._asked.add(request_id)

    def _log(self, line: str) -> None:
        assert self._sink is not None, "a guest speaks after it was given a sink"
        self._log_lines += 1
        if self._log_lines <= self._limits.log_lines:
            self._sink.log(line)

    def _too_large(self) -> SizeLimit:
        limit = self._limits.value_bytes
        return SizeLimit(what="value", limit=limit, message=f"more than {limit} bytes")

    def _fail(self, said: Said, seen: Seen) -> None:
        stack, place = author_stack(said.stack)
        if said.kind == "invalid":
            self._end(InvalidValue(path=said.path, message=said.message, place=place))
        elif said.kind == "size":
            limit = self._limits.value_bytes
            self._end(SizeLimit(what="value", limit=limit, path=said.path, message=said.message, place=place))
        else:
            self._end(
                _engine_limit(said.name, said.message, place, seen)
                or ScriptError(phase=said.phase, name=said.name, message=said.message, stack=stack, place=place)
            )

    def _ending_of(self, text: str, trace: str, seen: Seen) -> InvocationEnd:
        """Translate an exception that no code of the prelude has seen: `Name: message`, and its stack."""
        head = text[: self._limits.error_chars].partition("\n")[0]
        stack, place = author_stack(trace[: 4 * self._limits.error_chars])
        name, colon, message = head.partition(": ")
        if not colon:
            name, message = "Error", head
        return _engine_limit(name, message, place, seen) or ScriptError(
            phase=self._phase, name=name[:80], message=message, stack=stack, place=place
        )

    def _end(self, ending: InvocationEnd) -> None:
        """Report the end, once."""
        assert self._sink is not None, "a guest ends after it was given a sink"
        if not self.ended:
            self.ended = True
            self._sink.end(ending)


def _engine_limit(name: str, message: str, place: Place | None, seen: Seen) -> InvocationEnd | None:
    # The exception is `null` if there was no memory for an error object.
    if seen.is_full and message in ("out of memory", "null"):
        return MemoryLimit(place=place)
    if message == "Maximum call stack size exceeded" or (name == "InternalError" and message == "stack overflow"):
        return StackLimit(place=place)
    return None


def author_stack(stack: str) -> tuple[str, Place | None]:
    """The author's lines of a stack, and the innermost place."""
    lines: list[str] = []
    place: Place | None = None
    frames = stack.split("\n")[:64]
    for line, outer in zip(frames, [*frames[1:], ""], strict=True):
        found = _FRAME.match(line)
        if found is None or int(found[2]) > SCRIPT_LINES_MAX:
            continue
        if found[1] is None and outer.strip() == _JSON_PARSE:
            # A place in the argument of JSON.parse, which has the same file name as the script.
            continue
        if place is None:
            place = Place(int(found[2]), int(found[3]))
        lines.append(f"at {found[1] or '<anonymous>'} (script.js:{found[2]}:{found[3]})")
    return "\n".join(lines), place


def why_unfit(source: str, limits: Limits) -> InvocationEnd | None:
    """The reason not to give a script to the engine, if there is one."""
    if "\0" in source:
        return ScriptError(phase="load", name="SyntaxError", message="the script contains a NUL character")
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        return ScriptError(phase="load", name="SyntaxError", message="the script contains an unpaired surrogate")
    if size > limits.script_bytes:
        message = f"the script has {size} bytes; at most {limits.script_bytes} are allowed"
        return SizeLimit(what="script", limit=limits.script_bytes, message=message)
    lines = source.count("\n") + 1
    if lines > limits.script_lines:
        message = f"the script has {lines} lines; at most {limits.script_lines} are allowed"
        return SizeLimit(what="script", limit=limits.script_lines, message=message)
    return None
