"""Two ways to find out the outcome of a call: to ask the service by a GET, or to repeat the call with its key.

Only a whole and well-formed answer decides. Anything else is `Retry`: the host asks again, and then a person.
"""

from collections.abc import Mapping
from typing import Any, Final

from keep_actors.connectors import Applied, InvalidCall, MutationCall, PreconditionFailed, Retry, Verdict
from keep_actors.outbound.checked import WebError
from keep_actors.outbound.web import WebReply
from keep_actors.services.http.address import pairs_of, path_of, query_of
from keep_actors.services.http.answers import AnswerUnusable, resolved, result_of
from keep_actors.services.http.endpoint import HttpEndpoint
from keep_actors.services.http.operation import HttpOperation
from keep_actors.services.http.outcomes import Meaning, SentRequest, meaning_of_status, retry_after_ms, said
from keep_actors.services.http.request import built
from keep_actors.services.http.settings import HttpReconcile, read_duration_ms
from keep_actors.services.http.verdict import State, verdict_of
from keep_actors.services.json_schema import to_wire

KEY: Final = "key"
ACCEPTED: Final = "accepted"
"""The note of a call that the service accepted without an address to ask at."""
MARGIN_MS_MIN: Final = 300_000


class ReconcileByGet:
    """Ask by a GET that the operator declared, or at the address that the service named."""

    def __init__(self, operation: HttpOperation, rules: HttpReconcile, endpoint: HttpEndpoint) -> None:
        self._operation = operation
        self._rules = rules
        self._endpoint = endpoint

    async def reconcile(self, _: object, call: MutationCall) -> Verdict:
        """Look for the effect. Changes nothing."""
        values = self._values(call)
        is_polled = self._rules.poll_location and call.noted not in ("", ACCEPTED)
        if not is_polled and not self._rules.path:
            return Retry("the service has not named an address to ask at")
        try:
            target = call.noted if is_polled else self._target(values)
            reply = await self._endpoint.send("GET", target, headers={"accept": "application/json"})
        except (WebError, InvalidCall) as error:
            return Retry(str(error))
        state = State.POLLED if is_polled else State.ACCEPTED if call.noted else State.ANY
        match verdict_of(reply, self._rules, values, state):
            case Applied() if self._operation.answer == "none":
                return Applied()
            case Retry(message=message):
                return Retry(message, retry_after_ms(reply.headers, self._endpoint.now()))
            case verdict:
                return verdict

    def _values(self, call: MutationCall) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for each in self._operation.parameters:
            # One by one: two places may have a parameter of one name.
            for value in to_wire([each.field], call.params).values():
                given[each.field.spelled] = value
        return {**given, KEY: self._endpoint.key_of(call, self._operation.rules.key_chars)}

    def _target(self, values: Mapping[str, Any]) -> str:
        pairs = [pair for name, value in self._rules.query.items() for pair in pairs_of(name, resolved(value, values))]
        return path_of(self._rules.path, values) + query_of(pairs)


class ReconcileByRepetition:
    """Make the same request again, with the same key: the service has promised to replay the first answer.

    If the first request never came, this one has the effect. The key must still be kept, so there is a time after which
    only a person can tell.
    """

    def __init__(self, operation: HttpOperation, endpoint: HttpEndpoint) -> None:
        self._operation = operation
        self._endpoint = endpoint
        lifetime_ms = read_duration_ms(operation.rules.key_lifetime)
        self._usable_ms = lifetime_ms - max(lifetime_ms // 10, MARGIN_MS_MIN)

    async def reconcile(self, _: object, call: MutationCall) -> Verdict:
        """Repeat the call, if that is safe."""
        if refusal := self._unsafe(call):
            return Retry(refusal)
        operation, rules = self._operation, self._operation.rules
        request = built(operation, call.params, self._endpoint.key_of(call, rules.key_chars))
        try:
            reply = await self._endpoint.send(
                operation.method, request.target, headers=request.headers, body=request.body
            )
        except WebError as error:
            return Retry(str(error))
        about = SentRequest(operation.method, attempt=2, happened=rules.happened, did_not_happen=rules.did_not_happen)
        if meaning_of_status(reply.status, about) is not Meaning.HAPPENED:
            # Even a refusal says only that this request was refused.
            return Retry(f"the repeated call was answered {said(reply)}", self._wait_ms(reply))
        try:
            return Applied(result_of(operation, reply))
        except (AnswerUnusable, PreconditionFailed) as error:
            return Retry(str(error))

    def _unsafe(self, call: MutationCall) -> str:
        if call.attempt > 1 or call.sent_at is None:
            return "the time when its key was first used is not known, so it is not repeated"
        age_ms = self._endpoint.now() - call.sent_at
        if not 0 <= age_ms < self._usable_ms:
            return "the service may have forgotten its key by now, so it is not repeated"
        return ""

    def _wait_ms(self, reply: WebReply) -> int | None:
        return retry_after_ms(reply.headers, self._endpoint.now())
