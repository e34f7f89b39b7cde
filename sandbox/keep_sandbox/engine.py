"""QuickJS behind a narrow interface: one `Guest` runs one handler once, in a context of its own.

Synchronous. The script's requests, log lines and end go to a `LogSink`, as text and typed values. It is not a security
boundary; the process around it is. No other module knows the binding.
"""

import json
import re
import time
from importlib import metadata, resources
from typing import Literal, Protocol

# Import the extension itself: its package starts a thread on import, and a zygote must have only one.
import _quickjs  # type: ignore[import-not-found]  # it has no stubs
import msgspec

from keep_sandbox.invocation import Capabilities, Invocation
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

ENGINE_VERSION = "0.17.0.2"
"""The tested version. The workaround in `_Fuse` depends on how this version of the binding works."""


def _behind_the_script(file: str) -> str:
    return "\n" * SCRIPT_LINES_MAX + resources.files("keep_sandbox").joinpath(file).read_text("utf-8")


_PRELUDE = _behind_the_script("prelude.js")
_DECLARE = _behind_the_script("declare.js")
_JSON_PARSE = "at parse (native)"
_FRAME = re.compile(r"^\s*at (?:(.{1,200}?) \()?<input>:(\d{1,9}):(\d{1,9})\)?$")
_JOBS_PER_LOOK = 128


class EngineUnsuitable(Exception):
    """The installed engine is not the pinned one."""


def check_installation() -> None:
    """Raise `EngineUnsuitable` unless exactly the pinned engine is installed."""
    installed = {name for name in ("quickjs", "quickjs-ng") if _version(name) is not None}
    if "quickjs" in installed:
        # Both install a module of the same name, so that either of them might run.
        raise EngineUnsuitable("the distribution `quickjs` is installed; remove it and keep only `quickjs-ng`")
    found = _version("quickjs-ng")
    if found != ENGINE_VERSION:
        raise EngineUnsuitable(f"quickjs-ng {ENGINE_VERSION} is needed, found {found}")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


class LogSink(Protocol):
    """Receives the output of a guest. It must not raise: it is called from inside the engine."""

    def request(self, request_id: int, kind: Kind, name: str, params: str, /) -> None:
        """The script asks for something."""

    def log(self, line: str, /) -> None:
        """The script wrote a line."""

    def end(self, ending: InvocationEnd, /) -> None:
        """The script has ended. No further calls follow."""


class _Fuse:
    """Removes the binding's time limit when the engine drops its reference to this object.

    The binding refuses to call Python while a time limit is set. It checks again when it leaves the engine: if the
    limit is gone by then, the interrupt handler stays installed, and callables work. So the limit is set, and then the
    engine is made to drop its only reference to this object.
    """

    def __init__(self, holder: "list[_quickjs.Context]") -> None:
        # A list instead of the context itself: the engine holds this object, and the cycle would outlive the guest.
        self._holder = holder

    def __call__(self) -> None:
        """Never called: the engine can only hold callables."""

    def __del__(self) -> None:
        for context in self._holder:
            context.set_time_limit(-1)


class _Said(msgspec.Struct):
    kind: Literal["error", "invalid", "size"]
    phase: Literal["load", "run"]
    name: str
    message: str
    stack: str
    path: str


class Guest:
    """One invocation: `run` or `declare` once, then `answer` until `ended`, then `close`.

    Making a guest takes most of the time (the prelude), so it can be made before its script is known.
    """

    def __init__(self, limits: Limits) -> None:
        self._sink: LogSink | None = None
        self._terminal_mutations = True
        self._asked: set[int] = set()
        self._calls = 0
        self._log_lines = 0
        self._cpu_end = 0.0
        self.ended = False
        context = _quickjs.Context()
        context.add_callable("__bridge", self._bridge)
        self._holder = [context]
        context.add_callable("__arm_fuse", _Fuse(self._holder))
        context.add_callable("__stop_fuse", _Fuse(self._holder))
        self._context = context
        self._limit(limits)
        self._enter = context.eval(_PRELUDE)

    def run(self, invocation: Invocation, sink: LogSink, limits: Limits | None = None) -> None:
        """Load the script and call the handler. Returns when the script has ended or waits for answers.

        `limits` replace those that the guest was made with.
        """
        if limits is not None:
            self._limit(limits)
        given = {
            "limits": msgspec.to_builtins(self._limits),
            "now_ms": invocation.now_ms,
            "seed": invocation.seed,
            "capabilities": msgspec.to_builtins(invocation.capabilities),
        }
        self._terminal_mutations = invocation.capabilities.mutation_is_terminal
        address = msgspec.json.encode(invocation.address).decode()
        if self._load(invocation.source, given, sink):
            self._step("start", address, invocation.args)

    def declare(self, source: str, sink: LogSink) -> None:
        """Load the script and report its declaration, as a value. No handler is called."""
        given = {"limits": msgspec.to_builtins(self._limits), "now_ms": 0, "seed": 0}
        given["capabilities"] = msgspec.to_builtins(Capabilities())
        describe = self._context.eval(_DECLARE)
        if self._load(source, given, sink):
            self._step("declare", describe)
        del describe

    def answer(self, request_id: int, value: str) -> None:
        """Settle a request with a value (JSON text), and let the script go on."""
        if request_id in self._asked and not self.ended:
            self._asked.remove(request_id)
            self._step("settle", request_id, value)

    def close(self) -> None:
        """Free the context now: it is part of a reference cycle, and would otherwise wait for the collector."""
        self.ended = True
        self._sink = None
        self._holder.clear()
        del self._enter, self._context

    def _limit(self, limits: Limits) -> None:
        self._limits = limits
        self._context.set_memory_limit(limits.heap_bytes)
        self._context.set_max_stack_size(limits.js_stack_bytes)

    # Methods that run the script.

    def _load(self, source: str, given: dict[str, object], sink: LogSink) -> bool:
        self._sink = sink
        unfit = _unfit(source, self._limits)
        if unfit is not None:
            self._end(unfit)
            return False
        self._enter("configure", json.dumps(given))
        cpu_s = self._limits.cpu_soft_ms / 1000
        self._cpu_end = time.process_time() + cpu_s
        self._context.set_time_limit(cpu_s)
        self._enter("arm")
        try:
            self._context.module(source)
        except _quickjs.JSException as error:
            self._end(self._ending_of(str(error), "load"))
        except (ValueError, MemoryError) as error:
            self._end(ScriptError(phase="load", name=type(error).__name__, message=str(error)))
        return not self.ended

    def _step(self, *arguments: object) -> None:
        """Enter the engine, then run pending jobs until the script has ended or waits."""
        try:
            self._enter(*arguments)
            self._run_jobs()
            if not self.ended and not self._asked:
                self._enter("stuck")
        except _quickjs.JSException as error:
            # An interrupt, or memory that ran out outside of any promise.
            self._end(self._ending_of(str(error), "run"))
        if self._is_spent():
            self._end(CpuLimit())
        elif not self._asked:
            self._end(Deadlock())

    def _run_jobs(self) -> None:
        jobs = 0
        while not self.ended and self._context.execute_pending_job():
            jobs += 1
            if jobs % _JOBS_PER_LOOK == 0 and self._is_spent():
                self._end(CpuLimit())

    def _is_spent(self) -> bool:
        return time.process_time() >= self._cpu_end

    # Methods that the script calls, through the prelude. They must not raise.

    def _bridge(self, what: str, *arguments: object) -> bool:
        """Return True if the script must stop here."""
        if self.ended:
            return True
        # An interrupt can become an ordinary rejection: ignore what a script says after its time was up.
        if self._is_spent() and what != "fail":
            self._end(CpuLimit())
            return self._stop()
        match what, arguments:
            case "request", (int(request_id), str(kind), str(name), str(params)):
                return self._request(request_id, Kind(kind), name, params)
            case "log", (str(line),):
                self._log(json.loads(line))
            case "done", (str(value), bool(is_given)):
                self._done(value, is_given)
            case "fail", (str(said),):
                self._fail(said)
            case _:
                raise AssertionError("the prelude says nothing else")
        return False

    def _request(self, request_id: int, kind: Kind, name: str, params: str) -> bool:
        assert self._sink is not None, "a guest speaks after it was given a sink"
        self._calls += 1
        if self._calls > self._limits.host_calls:
            self._end(CallLimit(limit=self._limits.host_calls))
            return self._stop()
        if len(params) > self._limits.value_bytes or len(params.encode()) > self._limits.value_bytes:
            self._end(self._too_large())
            return self._stop()
        self._sink.request(request_id, kind, name, params)
        if kind is Kind.MUTATION and self._terminal_mutations:
            self.ended = True
            return self._stop()
        self._asked.add(request_id)
        return False

    def _stop(self) -> bool:
        """Make the engine interrupt the script wherever it is, with a time limit of zero; see `_Fuse`."""
        for _ in range(2):
            self._context.set_time_limit(0)
            try:
                self._enter("stop")
            except _quickjs.JSException:
                # Once in thousands of times the engine interrupts this very call; it will not do so twice.
                continue
            break
        return True

    def _log(self, line: str) -> None:
        assert self._sink is not None, "a guest speaks after it was given a sink"
        self._log_lines += 1
        if self._log_lines <= self._limits.log_lines:
            self._sink.log(line)

    def _done(self, value: str, is_given: bool) -> None:
        too_large = len(value.encode()) > self._limits.value_bytes
        self._end(self._too_large() if too_large else Value(value=value, is_given=is_given))

    def _too_large(self) -> SizeLimit:
        limit = self._limits.value_bytes
        return SizeLimit(what="value", limit=limit, message=f"more than {limit} bytes")

    def _fail(self, text: str) -> None:
        said = msgspec.json.decode(text, type=_Said)
        stack, place = _author_stack(said.stack)
        if self._is_spent():
            self._end(CpuLimit(place=place))
        elif said.kind == "invalid":
            self._end(InvalidValue(path=said.path, message=said.message, place=place))
        elif said.kind == "size":
            limit = self._limits.value_bytes
            self._end(SizeLimit(what="value", limit=limit, path=said.path, message=said.message, place=place))
        else:
            self._end(
                _engine_limit(said.name, said.message, place)
                or ScriptError(phase=said.phase, name=said.name, message=said.message, stack=stack, place=place)
            )

    def _end(self, ending: InvocationEnd) -> None:
        """Report the end, once: what the engine raises while it is being stopped comes later and does not count."""
        assert self._sink is not None, "a guest ends after it was given a sink"
        if not self.ended:
            self.ended = True
            self._sink.end(ending)

    def _ending_of(self, text: str, phase: Literal["load", "run"]) -> InvocationEnd:
        """Translate an exception of the binding: `Name: message`, then a stack."""
        head, _, rest = text[: 4 * self._limits.error_chars].partition("\n")
        stack, place = _author_stack(rest)
        if self._is_spent():
            return CpuLimit(place=place)
        name, colon, message = head.partition(": ")
        if not colon:
            name, message = "Error", head
        # The exception is `null` if there was no memory for an error object.
        if head == "null":
            return MemoryLimit(place=place)
        return _engine_limit(name, message, place) or ScriptError(
            phase=phase, name=name[:80], message=message[: self._limits.error_chars], stack=stack, place=place
        )


def _engine_limit(name: str, message: str, place: Place | None) -> InvocationEnd | None:
    if name == "InternalError" and message == "out of memory":
        return MemoryLimit(place=place)
    if message == "Maximum call stack size exceeded" or (name == "InternalError" and message == "stack overflow"):
        return StackLimit(place=place)
    return None


def _author_stack(stack: str) -> tuple[str, Place | None]:
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


def _unfit(source: str, limits: Limits) -> InvocationEnd | None:
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
