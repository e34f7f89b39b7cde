"""A method of a connector instance, as the host calls it. Each call returns one of a closed set of outcomes.

Never guesses: a mutation without a valid result counts as not happened only if the connector promises it. Only
cancellation and faults of the host are raised.
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
from keep_actors.kernel.foreign_code import Raised, Returned, TimedOut, attempt, carry_out, cut, spelled_out
from keep_actors.outbound.redaction import redacted_error, redacted_json, redacted_words
from keep_storage.model import FailureClass, Json

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(Definition):
    """A method with its definition, bound to an instance."""

    instance: Connector

    @classmethod
    def of(cls, instance: Connector, definition: Definition) -> "Method":
        """The method of this instance."""
        known = {field.name: getattr(definition, field.name) for field in fields(Definition)}
        return cls(**known, instance=instance)

    def decode_params(self, json_text: Json) -> Params:
        """Validate the parameters of a script. Raises `ParamsError`."""
        return self.signature.decode_params(self.full_name, json_text)

    async def read(self, params: Params, call: ReadCall, timeout_ms: int) -> ReadOutcome:
        """Make a read."""
        assert self.kind == "read", f"{self.full_name} is a mutation: it has to be in the ledger first"
        match await carry_out(self._work(params, call), timeout_ms):
            case Returned(value=json_text):
                return Answer(json_text)
            case TimedOut():
                return Failed(FailureClass.TRANSIENT, _late(timeout_ms))
            case Raised(error=ConnectorError() as error):
                return Failed(error.failure_class, self._words(error), error.retry_after_ms)
            case Raised(error=OSError() as error):  # TimeoutError and ConnectionError are among them
                return Failed(FailureClass.TRANSIENT, self._raised(error))
            case Raised(error=error):
                return Failed(FailureClass.INTERNAL, self._surprise(error))

    async def mutate(self, params: Params, call: MutationCall, timeout_ms: int) -> CallOutcome:
        """Make a mutation. The ledger must say `in_flight` before this is called, and gets the outcome after."""
        assert self.kind == "mutation", f"{self.full_name} is a read"
        try:
            ended = await carry_out(self._work(params, call), timeout_ms)
        finally:
            # A worker thread may go on after its time: from here on it can send nothing.
            is_sent = call.end() or not self.marks_sent
        match ended:
            case Returned(value=json_text):
                return Happened(json_text)
            case TimedOut():
                words = _late(timeout_ms)
                return Unknown(words) if is_sent else DidNotHappen(FailureClass.TRANSIENT, words)
            case Raised(error=ConnectorError() as error):
                return DidNotHappen(error.failure_class, self._words(error), error.retry_after_ms)
            case Raised(error=Uncertain() as error):
                return Unknown(self._words(error))
            case Raised(error=ResultMismatch() as error):  # it returned, so it did something
                return Unknown(self._surprise(error))
            case Raised(error=OSError() as error) if not is_sent:
                return DidNotHappen(FailureClass.TRANSIENT, self._raised(error))
            case Raised(error=error) if not is_sent:
                return DidNotHappen(FailureClass.INTERNAL, self._surprise(error))
            case Raised(error=error):
                return Unknown(self._surprise(error))

    async def reconcile(self, call: MutationCall, timeout_ms: int, waited_ms: int = 0) -> Verdict:
        """Find out the outcome of a call. The result of `Applied` is JSON text here.

        `waited_ms`: the time since the call's deadline, or since its end if that came later; negative before. Until it
        reaches `settle_ms`, a missing effect proves nothing, and is `TooEarly`.
        """
        reconciler = self.reconciler
        assert reconciler is not None, f"{self.full_name} cannot be reconciled"
        match await carry_out(self._look(reconciler, call), timeout_ms):
            case Returned(value=NotApplied()) if waited_ms < self.settle_ms:
                return TooEarly("not found, but it is too early to tell", self.settle_ms - waited_ms)
            case Returned(value=verdict):
                return verdict
            case TimedOut():
                return Retry(_late(timeout_ms))
            case Raised(error=ConnectorError() as error):
                return Retry(self._words(error), error.retry_after_ms)
            case Raised(error=error):
                return Retry(self._surprise(error))

    def identity_of(self, params: Params) -> Json:
        """The target of a call as canonical JSON: the same target has the same text."""
        return self._canonical(params.values, self.identity)

    def compare_payload(self, old_params_json: Json, new_params_json: Json) -> Similarity:
        """Compare the payloads of two calls for the same target."""
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
        """The page where a person can check if it happened, if the connector knows one."""
        url: object = None
        with attempt() as tried:
            url = self.check_url(call) if callable(self.check_url) else self.check_url
        if tried.error is not None:
            self._surprise(tried.error)
        return url if isinstance(url, str) and is_web_address(url) else None

    def _work(self, params: Params, call: ReadCall | MutationCall) -> Callable[[], Awaitable[Json]]:
        # Decoded again, so that a connector that changes its arguments does not change `params`.
        arguments = {**self.decode_params(params.json_text).values}
        if self.signature.takes_call:
            arguments[CALL] = call

        async def work() -> Json:
            return self._result_text(await self.function(self.instance, **arguments))

        return work

    def _look(self, reconciler: Reconciler, call: MutationCall) -> Callable[[], Awaitable[Verdict]]:
        async def look() -> Verdict:
            found: object = await reconciler(self.instance, call)
            match found:
                case Applied(result=result):
                    return Applied(self._result_text(result))
                case NotApplied():
                    return found
                case Retry(message=message, retry_after_ms=retry_after_ms):
                    return Retry(self._shown(message), retry_after_ms)
                case _:
                    raise ResultMismatch(f"reconcile returned {found!r}, not Applied(…), NotApplied() or Retry(…)")

        return look

    def _result_text(self, value: object) -> Json:
        json_text = self.signature.result_text(value)
        return redacted_json(json_text, self.instance.__hidden__) if self.instance.__hidden__ else json_text

    def _canonical(self, values: Mapping[str, Any], names: Iterable[str]) -> Json:
        spelled = self.signature.javascript_names
        given = {spelled[name]: values[name] for name in names if values[name] is not msgspec.UNSET}
        return msgspec.json.encode(given, order="sorted").decode()

    def _surprise(self, error: Exception) -> str:
        """Log an unexpected error with its traceback, for the author of the connector."""
        logger.warning("%s raised an undeclared error", self.full_name, exc_info=self._safe(error))
        return self._raised(error)

    def _raised(self, error: Exception) -> str:
        return self._shown(str(error) if isinstance(error, ResultMismatch) else spelled_out(error))

    def _words(self, error: Exception) -> str:
        """The message of an error; its type if it has no message, or `str` fails."""
        words = ""
        with attempt():
            words = self._shown(str(error))
        return words or type(error).__name__

    def _shown(self, text: str) -> str:
        """A text for the ledger: bounded, and without the secrets of its connector."""
        return cut(redacted_words(text, self.instance.__hidden__))

    def _safe(self, error: Exception) -> BaseException:
        return redacted_error(error, self.instance.__hidden__)


def _late(timeout_ms: int) -> str:
    return f"no answer within {timeout_ms} ms"
