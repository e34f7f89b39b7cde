"""A method of a connector instance, as the host calls it. Every call ends in one of the closed sets of outcomes.

Never guesses: of a mutation that did not return a good result, only the connector's own promise says that nothing
happened. What raises here is a cancellation, or a fault of the host.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import msgspec

from keep_actors.connectors.calls import MutationCall, ReadCall
from keep_actors.connectors.connector import Connector
from keep_actors.connectors.declaration import Reconciler, Similarity
from keep_actors.connectors.definition import Definition, is_web_address
from keep_actors.connectors.errors import ConnectorError, ParamsError, Uncertain
from keep_actors.connectors.outcomes import (
    Answer,
    Applied,
    CallOutcome,
    DidNotHappen,
    Failed,
    Happened,
    NotApplied,
    ReadOutcome,
    Retry,
    TooEarly,
    Unknown,
    Verdict,
)
from keep_actors.connectors.params import Params
from keep_actors.connectors.signature import CALL, ResultMismatch
from keep_actors.kernel.foreign_code import Raised, Returned, TimedOut, attempt, carry_out, cut, described
from keep_storage.model import FailureClass, Json

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Definition):
    """What the host knows about a method, and the ways to use it."""

    instance: Connector

    @classmethod
    def of(cls, instance: Connector, definition: Definition) -> "Method":
        """The method of this instance."""
        known = {field.name: getattr(definition, field.name) for field in fields(Definition)}
        return cls(**known, instance=instance)

    def decode_params(self, json_text: Json) -> Params:
        """What the script passed, validated. Raises `ParamsError`."""
        return self.signature.decode_params(self.full_name, json_text)

    async def read(self, params: Params, call: ReadCall, timeout_ms: int) -> ReadOutcome:
        """Look."""
        assert self.kind == "read", f"{self.full_name} is a mutation: it has to be in the ledger first"
        match await carry_out(self._work(params, call), timeout_ms):
            case Returned(value=json_text):
                return Answer(json_text)
            case TimedOut():
                return Failed(FailureClass.TRANSIENT, _late(timeout_ms))
            case Raised(error=ConnectorError() as error):
                return Failed(error.failure_class, _words(error), error.retry_after_ms)
            case Raised(error=OSError() as error):  # TimeoutError and ConnectionError are among them
                return Failed(FailureClass.TRANSIENT, _raised(error))
            case Raised(error=error):
                return Failed(FailureClass.INTERNAL, self._surprise(error))

    async def mutate(self, params: Params, call: MutationCall, timeout_ms: int) -> CallOutcome:
        """Act. The ledger says `in_flight` before this is called, and learns the outcome after."""
        assert self.kind == "mutation", f"{self.full_name} is a read"
        match await carry_out(self._work(params, call), timeout_ms):
            case Returned(value=json_text):
                return Happened(json_text)
            case TimedOut():
                return Unknown(_late(timeout_ms))
            case Raised(error=ConnectorError() as error):
                return DidNotHappen(error.failure_class, _words(error), error.retry_after_ms)
            case Raised(error=Uncertain() as error):
                return Unknown(_words(error))
            case Raised(error=error):
                return Unknown(self._surprise(error))

    async def reconcile(self, call: MutationCall, timeout_ms: int, waited_ms: int = 0) -> Verdict:
        """Find out what became of a call. The result of `Applied` is JSON text here.

        `waited_ms` is how long ago the call's deadline was, or its end if it came later; less than nothing before.
        Until `settle_ms` of that have passed, the absence of an effect proves nothing, and is `TooEarly`.
        """
        reconciler = self.reconciler
        assert reconciler is not None, f"{self.full_name} cannot be reconciled"
        match await carry_out(self._look(reconciler, call), timeout_ms):
            case Returned(value=NotApplied()) if waited_ms < self.settle_ms:
                return TooEarly("not found, which means nothing yet", self.settle_ms - waited_ms)
            case Returned(value=verdict):
                return verdict
            case TimedOut():
                return Retry(_late(timeout_ms))
            case Raised(error=ConnectorError() as error):
                return Retry(_words(error), error.retry_after_ms)
            case Raised(error=error):
                return Retry(self._surprise(error))

    def identity_of(self, params: Params) -> Json:
        """What is changed, as canonical JSON: the same target has the same text."""
        return self._canonical(params.values, self.identity)

    def compare_payload(self, old_params_json: Json, new_params_json: Json) -> Similarity:
        """How much two calls for the same target differ in what they do to it."""
        try:
            old, new = self.decode_params(old_params_json), self.decode_params(new_params_json)
        except ParamsError:
            return "significant"  # recorded by an older version of the connector
        if self.identity_of(old) != self.identity_of(new):
            return "significant"
        payload = [name for name in self.signature.javascript_names if name not in self.identity]
        if self._canonical(old.values, payload) == self._canonical(new.values, payload):
            return "equivalent"
        if self.comparer is None:
            return "significant"
        said: object = None
        with attempt() as tried:
            said = self.comparer(
                self.instance,
                {name: old.values[name] for name in payload},
                {name: new.values[name] for name in payload},
            )
        if tried.error is not None:
            self._surprise(tried.error)
        match said:
            case "equivalent" | "minor":
                return said
            case _:
                return "significant"

    def check_url_of(self, call: MutationCall) -> str | None:
        """Where a person can look whether it happened, if the connector knows."""
        url: object = None
        with attempt() as tried:
            url = self.check_url(call) if callable(self.check_url) else self.check_url
        if tried.error is not None:
            self._surprise(tried.error)
        return url if isinstance(url, str) and is_web_address(url) else None

    def _work(self, params: Params, call: ReadCall | MutationCall) -> Callable[[], Awaitable[Json]]:
        # Decoded again: what the connector does to its arguments is not seen by who looks at them later.
        arguments = {**self.decode_params(params.json_text).values}
        if self.signature.takes_call:
            arguments[CALL] = call

        async def work() -> Json:
            return self.signature.result_text(await self.function(self.instance, **arguments))

        return work

    def _look(self, reconciler: Reconciler, call: MutationCall) -> Callable[[], Awaitable[Verdict]]:
        async def look() -> Verdict:
            found: object = await reconciler(self.instance, call)
            match found:
                case Applied(result=result):
                    return Applied(self.signature.result_text(result))
                case NotApplied() | Retry():
                    return found
                case _:
                    raise ResultMismatch(f"reconcile returned {found!r}, not Applied(…), NotApplied() or Retry(…)")

        return look

    def _canonical(self, values: Mapping[str, Any], names: Iterable[str]) -> Json:
        spelled = self.signature.javascript_names
        given = {spelled[name]: values[name] for name in names if values[name] is not msgspec.UNSET}
        return msgspec.json.encode(given, order="sorted").decode()

    def _surprise(self, error: Exception) -> str:
        """Not foreseen by the author of the connector, who will want the traceback."""
        logger.warning("%s failed in a way it does not declare", self.full_name, exc_info=error)
        return _raised(error)


def _late(timeout_ms: int) -> str:
    return f"no answer within {timeout_ms} ms"


def _raised(error: Exception) -> str:
    return cut(str(error)) if isinstance(error, ResultMismatch) else described(error)


def _words(error: Exception) -> str:
    """The author's own. An error without words, or that cannot say them, is at least named."""
    words = ""
    with attempt():
        words = cut(str(error))
    return words or type(error).__name__
