"""The rules for any connector, as a function of a connector: `check_connector`. Every finding has a name and says why.

It makes real calls, so give it an account that is for tests. It decides nothing about the service behind the connector:
it looks at what the runtime would be told, and at what becomes of a call that the runtime cannot see the end of.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import anyio
import msgspec

from keep_actors.connectors import (
    Answer,
    Applied,
    Catalog,
    Connector,
    DidNotHappen,
    Failed,
    Happened,
    Method,
    MutationCall,
    NotApplied,
    Params,
    ParamsError,
    ReadCall,
    Retry,
    Verdict,
)
from keep_actors.kernel.foreign_code import attempt, described
from keep_actors.testing.findings import CertificationReport, Check, Finding
from keep_sandbox.limits import DEFAULT_LIMITS
from keep_storage import Ids, wall_clock
from keep_storage.model import FailureClass, Json

Example = Mapping[str, Any]
"""The one object that a script passes."""

_PAUSE_MS: Final = 50


async def check_connector(
    connector: Connector,
    *,
    examples: Mapping[str, Example],
    leave_out: Collection[str] = (),
    moving: Collection[str] = (),
    timeout_ms: int = 10_000,
    patience_ms: int = 5_000,
    new_key: Callable[[], str] | None = None,
) -> CertificationReport:
    """Open a connector, try every method with its example, close it, and say what was found.

    `examples` has the parameters of a call for each method, by the name that scripts use. An example of a mutation is
    carried out up to three times, each time with a key of its own. `leave_out` names methods that are not to be called.
    `moving` names reads whose answers change by themselves. A call may take `timeout_ms`; one that was cut off has
    `patience_ms` to end, and so has a `reconcile` that cannot tell yet, after `settle_ms`.

    Raises `ValueError` for a name that is no method, and what the connector's own `open` and `close` raise.
    """
    methods = {method.name: method for method in Catalog([connector]).methods.values()}
    for name in (*examples, *leave_out, *moving):
        if name not in methods:
            raise ValueError(f"{connector.name} has no method {name!r}; there are: {', '.join(methods)}")
    ids = Ids(wall_clock)
    suite = _Suite(methods, timeout_ms, patience_ms, new_key or (lambda: ids.new("mut")))
    await connector.open()
    try:
        await suite.run(examples, leave_out, moving)
    finally:
        await connector.close()
    return CertificationReport(connector.name, suite.made, suite.findings)


class _Suite:
    """The checks, in the order in which they are made. What is found is collected; nothing stops the others."""

    def __init__(
        self, methods: Mapping[str, Method], timeout_ms: int, patience_ms: int, new_key: Callable[[], str]
    ) -> None:
        self.findings: list[Finding] = []
        self.made: list[str] = []
        self._methods = methods
        self._timeout_ms = timeout_ms
        self._patience_ms = patience_ms
        self._new_key = new_key

    async def run(self, examples: Mapping[str, Example], leave_out: Collection[str], moving: Collection[str]) -> None:
        calls: dict[str, Params] = {}
        for name, method in self._methods.items():
            self._declaration(method)
            if name in leave_out:
                continue
            if name not in examples:
                self._find(Check.EXAMPLE_MISSING, method, "there is no example of a call")
            elif (params := self._params(method, examples[name])) is not None:
                calls[name] = params
        reads = {name: params for name, params in calls.items() if self._methods[name].kind == "read"}
        await self._reads(reads, moving)
        still = {name: params for name, params in reads.items() if name not in moving}
        for name, params in calls.items():
            if self._methods[name].kind == "mutation":
                await self._mutation(self._methods[name], params, still)

    # What is declared.

    def _declaration(self, method: Method) -> None:
        if not method.description:
            self._find(Check.DESCRIPTION_MISSING, method, "it has no docstring")
        if method.kind == "mutation" and not (method.reconcilable or method.check_hint or method.check_url):
            self._find(Check.HINT_MISSING, method, "it has neither `reconcile` nor `check_hint` nor `check_url`")

    def _params(self, method: Method, example: Example) -> Params | None:
        """The parameters of the example, if they can be had; and once more from what they are stored as."""
        try:
            params = method.decode_params(msgspec.json.encode(example).decode())
        except ParamsError as error:
            self._find(Check.EXAMPLE_REFUSED, method, str(error))
            return None
        names = method.signature.javascript_names
        given = {names[name]: value for name, value in params.values.items() if value is not msgspec.UNSET}
        stored = msgspec.json.encode(given).decode()
        try:
            again = method.decode_params(stored)
        except ParamsError as error:
            self._find(Check.PARAMS_CHANGE, method, f"what it was given cannot be read again: {error}")
            return params
        if again.values != params.values:
            self._find(Check.PARAMS_CHANGE, method, f"{params.values!r} is {again.values!r} when it is read again")
        self._made(method, "its parameters are the same when they are read again")
        return params

    # Reads.

    async def _reads(self, reads: Mapping[str, Params], moving: Collection[str]) -> None:
        for name, params in reads.items():
            method = self._methods[name]
            first, second = await self._read(method, params), await self._read(method, params)
            match first:
                case Failed(cls=FailureClass.INTERNAL):
                    self._find(Check.SURPRISE, method, first.message)
                case Failed():
                    self._find(Check.EXAMPLE_FAILS, method, first.message)
                case Answer() if len(first.json_text) > DEFAULT_LIMITS.value_bytes:
                    self._find(Check.RESULT_TOO_LARGE, method, f"{len(first.json_text):,} bytes")
                case Answer() if name not in moving and first != second:
                    self._find(Check.READ_CHANGES, method, f"first {_cut(first)}, then {_cut(second)}")
                case _:
                    self._made(method, "it answers, and answers the same again" if name not in moving else "it answers")

    async def _read(self, method: Method, params: Params) -> Answer | Failed | None:
        call = ReadCall(workflow_id="wf_suite", run_id="run_suite")
        with self._no_exit(method):
            return await method.read(params, call, self._timeout_ms)
        return None

    async def _seen(self, reads: Mapping[str, Params]) -> dict[str, Answer | Failed | None]:
        """The answers of the reads now."""
        return {name: await self._read(self._methods[name], params) for name, params in reads.items()}

    # Mutations.

    async def _mutation(self, method: Method, params: Params, reads: Mapping[str, Params]) -> None:
        call = self._call(params)
        if method.reconcilable:
            await self._never_made(method, self._call(params), Check.FINDS_WHAT_NEVER_WAS)
        self._url(method, call)
        self._comparison(method, params)
        began = anyio.current_time()
        happened = await self._happens(method, params, call)
        took_ms = _ms_since(began)
        if happened is not None and method.reconcilable:
            before = await self._seen(reads)
            await self._found(method, call, happened)
            await self._never_made(method, self._call(params), Check.FINDS_ANOTHERS)
            if (after := await self._seen(reads)) != before:
                changed = ", ".join(name for name in before if before[name] != after[name])
                self._find(Check.RECONCILE_CHANGES, method, f"after it, other answers came from {changed}")
        for timeout_ms in (0, took_ms // 2):
            await self._cut_off(method, params, timeout_ms, took_ms)

    async def _happens(self, method: Method, params: Params, call: MutationCall) -> Happened | None:
        outcome = None
        with self._no_exit(method):
            outcome = await method.mutate(params, call, self._timeout_ms)
        match outcome:
            case Happened() if len(outcome.json_text) > DEFAULT_LIMITS.value_bytes:
                self._find(Check.RESULT_TOO_LARGE, method, f"{len(outcome.json_text):,} bytes")
            case Happened():
                self._made(method, "it happens")
                return outcome
            case DidNotHappen():
                self._find(Check.EXAMPLE_FAILS, method, outcome.message)
            case None:
                pass
            case _:
                self._find(Check.SURPRISE, method, outcome.message)
        return None

    async def _never_made(self, method: Method, call: MutationCall, check: Check) -> None:
        """A call with a key that was never used did not happen."""
        match await self._told(method, call, waited_ms=method.settle_ms):
            case Applied():
                self._find(check, method, "`reconcile` says Applied about a call that was never made")
            case Retry() as told:
                self._find(Check.CANNOT_TELL, method, f"about a call that was never made: {told.message}")
            case NotApplied():
                self._made(method, "`reconcile` knows that a call was never made")

    async def _found(self, method: Method, call: MutationCall, happened: Happened) -> None:
        """A call that happened is found, with the result that the run would have had."""
        match await self._told(method, call):
            case NotApplied():
                self._find(Check.MISSES_WHAT_HAPPENED, method, "`reconcile` says NotApplied about a call that returned")
            case Retry() as told:
                self._find(Check.CANNOT_TELL, method, f"about a call that returned: {told.message}")
            case Applied(result=result) if not _same(result, happened.json_text):
                self._find(Check.ANOTHER_RESULT, method, f"first {_cut(happened.json_text)}, then {_cut(result)}")
            case Applied():
                self._made(method, "`reconcile` finds what happened, with its result")

    async def _told(self, method: Method, call: MutationCall, waited_ms: int = 0) -> Verdict | None:
        """The last answer of `reconcile`: as the runtime does, it is asked again while it cannot tell."""
        began = anyio.current_time()
        while True:
            so_far_ms = waited_ms + _ms_since(began)
            verdict: Verdict | None = None
            with self._no_exit(method):
                verdict = await method.reconcile(call, self._timeout_ms, so_far_ms)
            if not isinstance(verdict, Retry) or so_far_ms > method.settle_ms + self._patience_ms:
                return verdict
            await anyio.sleep(max(_PAUSE_MS, verdict.retry_after_ms or 0) / 1000)

    async def _cut_off(self, method: Method, params: Params, timeout_ms: int, took_ms: int) -> None:
        """A call that is cut off ends soon; and what `reconcile` then says about it stays true."""
        call, began, outcome = self._call(params), anyio.current_time(), None
        with self._no_exit(method):
            outcome = await method.mutate(params, call, timeout_ms)
        late_ms = _ms_since(began) - timeout_ms
        if late_ms > self._patience_ms:
            self._find(Check.DEAF, method, f"it went on for {late_ms:,} ms after it was cancelled")
        if outcome is None or not method.reconcilable:
            return
        told = await self._told(method, call)
        if isinstance(told, Retry):
            self._find(Check.CANNOT_TELL, method, f"about a call that was cut off: {told.message}")
            return
        if isinstance(outcome, Happened) and isinstance(told, NotApplied):
            self._find(Check.MISSES_WHAT_HAPPENED, method, "it returned although it was cut off, and is not found")
            return
        await anyio.sleep(min(2 * took_ms + _PAUSE_MS, self._patience_ms) / 1000)
        if isinstance(told, NotApplied) and isinstance(await self._told(method, call), Applied):
            self._find(Check.COMES_LATER, method, "it was cut off, `reconcile` said NotApplied, and later Applied")
        else:
            self._made(method, f"what became of a call that was cut off after {timeout_ms} ms can be found out")

    def _url(self, method: Method, call: MutationCall) -> None:
        if method.check_url is not None and method.check_url_of(call) is None:
            self._find(Check.URL_UNUSABLE, method, "`check_url` gave no address that starts with https://")

    def _comparison(self, method: Method, params: Params) -> None:
        if method.comparer is None:
            return
        payload = {name: value for name, value in params.values.items() if name not in method.identity}
        said: object = None
        with attempt() as tried:
            said = method.comparer(method.instance, dict(payload), dict(payload))
        if tried.error is not None:
            self._find(Check.COMPARES_WRONGLY, method, f"`compare_payload` raised {described(tried.error)}")
        elif said != "equivalent":
            self._find(Check.COMPARES_WRONGLY, method, f"`compare_payload` says {said!r} of a payload and itself")

    # What all of them need.

    def _call(self, params: Params) -> MutationCall:
        key = self._new_key()
        return MutationCall(
            idempotency_key=key,
            workflow_id="wf_suite",
            run_id="run_suite",
            mutation_id=key,
            params=params.values,
            sent_at=wall_clock(),
            attempt=1,
        )

    def _no_exit(self, method: Method) -> "_NoExit":
        return _NoExit(lambda error: self._find(Check.NO_EXCEPTION, method, f"{type(error).__name__} was raised"))

    def _find(self, check: Check, method: Method, what: str) -> None:
        self.findings.append(Finding(check, method.full_name, what))

    def _made(self, method: Method, what: str) -> None:
        self.made.append(f"{method.full_name}: {what}")


class _NoExit:
    """Catches errors that would end the process or the task of the runtime, except a cancellation of ours."""

    def __init__(self, found: Callable[[BaseException], None]) -> None:
        self._found = found

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        ours = (Exception, KeyboardInterrupt, anyio.get_cancelled_exc_class())
        if error is None or isinstance(error, ours):
            return False
        self._found(error)
        return True


def _ms_since(began: float) -> int:
    return int((anyio.current_time() - began) * 1000)


def _same(one: Json, other: Json) -> bool:
    return bool(msgspec.json.decode(one) == msgspec.json.decode(other))


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
