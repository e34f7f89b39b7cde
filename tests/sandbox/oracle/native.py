"""One invocation in the native binding of QuickJS-ng, with the product's own prelude.

It has the heap limit and the stack limit of the binding, no limit on CPU, and no fast path for JSON text: `plain` never
answers, so that all text comes from the prelude. For scripts that end.
"""

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

import _quickjs  # type: ignore[import-not-found]  # it has no stubs
import msgspec

from keep_sandbox.guest import author_stack, why_unfit
from keep_sandbox.invocation import Invocation
from keep_sandbox.limits import DEFAULT_LIMITS, SCRIPT_LINES_MAX, Limits
from keep_sandbox.outcomes import (
    CallLimit,
    Deadlock,
    InvalidValue,
    IssuedMutation,
    Kind,
    Outcome,
    Refused,
    Request,
    ScriptError,
    SizeLimit,
    StackLimit,
    Value,
)
from keep_sandbox.shim import Said

_PRELUDE = "\n" * SCRIPT_LINES_MAX + resources.files("keep_sandbox").joinpath("prelude.js").read_text("utf-8")
_STACK_BYTES = 1024 * 1024
"""A native frame takes more than one in WebAssembly."""
_HOST = """
globalThis.__host = (() => {
  const say = globalThis.__say;
  delete globalThis.__say;
  const stop = () => { throw new Error("stopped") };
  return {
    request: (id, kind, name, params) => { if (say("request", id, kind, name, params)) stop() },
    log: (line) => { if (say("log", JSON.stringify(line))) stop() },
    done: (text, isGiven) => { if (say("done", text, isGiven)) stop() },
    fail: (text) => { if (say("fail", text)) stop() },
    loaded: () => { say("loaded") },
    plain: () => undefined,
  };
})();
"""


class NativeCall:
    """Runs one invocation, driven as `TrustedCall` is."""

    def __init__(self, invocation: Invocation, limits: Limits = DEFAULT_LIMITS) -> None:
        self.logs: list[str] = []
        self.requests: list[Request] = []
        self._invocation = invocation
        self._limits = limits
        self._outcome: Outcome | None = None
        self._open: list[Request] = []
        self._is_loaded = False
        self._phase = "load"
        self._context = _quickjs.Context()
        self._context.set_memory_limit(limits.heap_bytes)
        self._context.set_max_stack_size(_STACK_BYTES)
        self._context.add_callable("__say", self._say)
        self._context.eval(_HOST)
        self._enter = self._context.eval(_PRELUDE)

    def run(self, reply: Callable[[Request], str | None]) -> Outcome:
        """Run to the end. A reply of None refuses the request."""
        unfit = why_unfit(self._invocation.source, self._limits)
        if unfit is not None:
            return unfit
        self._guarded(self._start)
        while self._outcome is None and self._open:
            request = self._open.pop(0)
            said = reply(request)
            if said is None:
                return Refused(reason="refused by the test")
            self._guarded(lambda: self._go_on("settle", request.id, said))  # noqa: B023  # called at once
        return self._outcome or Deadlock()

    def _start(self) -> None:
        given = self._invocation
        limits = msgspec.json.encode(self._limits).decode()
        self._enter("instant", limits, float(given.now_ms), _int32(given.seed))
        self._context.module(given.source)
        self._enter("load")
        while self._outcome is None and not self._is_loaded and self._context.execute_pending_job():
            pass
        if self._outcome is None and self._is_loaded:
            self._phase = "run"
            capabilities, address = msgspec.json.encode(given.capabilities), msgspec.json.encode(given.address)
            self._go_on("start", capabilities.decode(), address.decode(), given.args)

    def _go_on(self, *arguments: object) -> None:
        self._enter(*arguments)
        while self._outcome is None and self._context.execute_pending_job():
            pass
        if self._outcome is None and not self._open:
            self._enter("stuck")

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except _quickjs.JSException as error:
            if self._outcome is None:
                head, _, rest = str(error).partition("\n")
                name, colon, message = head.partition(": ")
                self._fail(name if colon else "Error", message if colon else head, rest, self._phase)

    def _say(self, what: str, *given: Any) -> bool:
        """Return True if the script must not go on."""
        if self._outcome is not None:
            return True
        if what == "request":
            return self._request(*given)
        if what == "log":
            if len(self.logs) < self._limits.log_lines:
                self.logs.append(json.loads(given[0]))
        elif what == "done":
            text, is_given = given
            too_large = len(text.encode()) > self._limits.value_bytes
            self._outcome = self._too_large() if too_large else Value(value=text, is_given=is_given)
        elif what == "fail":
            self._told(msgspec.json.decode(given[0], type=Said))
        else:
            self._is_loaded = True
        return False

    def _request(self, number: int, kind: str, name: str, params: str) -> bool:
        if len(self.requests) >= self._limits.host_calls:
            self._outcome = CallLimit(limit=self._limits.host_calls)
        elif len(params.encode()) > self._limits.value_bytes:
            self._outcome = self._too_large()
        elif kind == "mutation" and self._invocation.capabilities.mutation_is_terminal:
            self._outcome = IssuedMutation(id=number, name=name, params=params)
        else:
            request = Request(id=number, kind=Kind(kind), name=name, params=params)
            self.requests.append(request)
            self._open.append(request)
        return self._outcome is not None

    def _too_large(self) -> SizeLimit:
        limit = self._limits.value_bytes
        return SizeLimit(what="value", limit=limit, message=f"more than {limit} bytes")

    def _told(self, said: Said) -> None:
        _, place = author_stack(said.stack)
        if said.kind == "invalid":
            self._outcome = InvalidValue(path=said.path, message=said.message, place=place)
        elif said.kind == "size":
            limit = self._limits.value_bytes
            self._outcome = SizeLimit(what="value", limit=limit, path=said.path, message=said.message, place=place)
        else:
            self._fail(said.name, said.message, said.stack, said.phase)

    def _fail(self, name: str, message: str, trace: str, phase: Any) -> None:
        stack, place = author_stack(trace)
        if message == "Maximum call stack size exceeded":
            self._outcome = StackLimit(place=place)
        else:
            self._outcome = ScriptError(phase=phase, name=name, message=message, stack=stack, place=place)


def _int32(number: int) -> int:
    return (number & 0xFFFFFFFF) - ((number & 0x80000000) << 1)
