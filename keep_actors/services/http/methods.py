"""Methods of a connector, made of declared operations: how one is called, and which outcome it has.

A mutation never follows a redirect, is never repeated here, and says when it sends.
"""

from typing import Any
from urllib.parse import urljoin

from keep_actors.connectors import Offered, Options, PreconditionFailed, ReadCall, Uncertain
from keep_actors.connectors.calls import MutationCall
from keep_actors.connectors.declaration import Reconciler
from keep_actors.outbound.checked import WebError
from keep_actors.outbound.web import WebReply
from keep_actors.services.http.answers import AnswerUnusable, result_of
from keep_actors.services.http.endpoint import HttpEndpoint
from keep_actors.services.http.operation import HttpOperation
from keep_actors.services.http.outcomes import (
    Meaning,
    SentRequest,
    error_of,
    meaning_of_problem,
    meaning_of_status,
    read_error,
    read_refusal,
    retry_after_ms,
    said,
)
from keep_actors.services.http.reconcile import ACCEPTED, ReconcileByGet, ReconcileByRepetition
from keep_actors.services.http.request import built
from keep_actors.services.http.rules import check_operation
from keep_storage.limits import NOTE_CHARS_MAX

REDIRECTS_MAX = 5


def offered(operation: HttpOperation, endpoint: HttpEndpoint, *, where: str = "") -> Offered:
    """The method of an operation. `where` begins the words of an error. Raises `SettingsError`."""
    check_operation(operation, endpoint, where or f"calls.{operation.name}")
    rules = operation.rules
    names = {each.field.spelled: each.field.name for each in operation.parameters}
    options = Options(
        kind="read" if operation.is_read else "mutation",
        risk=rules.risk or ("low" if operation.is_read else "medium"),
        name=operation.name,
        permission=rules.permission,
        timeout_ms=rules.timeout_ms,
        by_id=rules.by_id,
        marks_sent=not operation.is_read,
        settle_ms=rules.settle_ms,
        identity=None if rules.identity is None else [names[each] for each in rules.identity],
        check_hint="" if operation.is_read else rules.check_hint or _hint(operation, endpoint),
        check_url=rules.check_url,
    )
    return Offered(
        function=_Read(operation, endpoint).read if operation.is_read else _Mutation(operation, endpoint).mutate,
        options=options,
        params=[each.field.param() for each in operation.parameters],
        result=operation.result,
        description=operation.description or f"{operation.method} {operation.path}",
        reconciler=_reconciler(operation, endpoint),
    )


def _hint(operation: HttpOperation, endpoint: HttpEndpoint) -> str:
    return f"Look at {endpoint.base_url} for the effect of {operation.method} {operation.path}."


def _reconciler(operation: HttpOperation, endpoint: HttpEndpoint) -> Reconciler | None:
    if operation.is_read:
        return None
    if operation.rules.reconcile is not None:
        return ReconcileByGet(operation, operation.rules.reconcile, endpoint).reconcile
    return ReconcileByRepetition(operation, endpoint).reconcile if operation.rules.replay else None


class _Read:
    """A call that changes nothing."""

    def __init__(self, operation: HttpOperation, endpoint: HttpEndpoint) -> None:
        self._operation = operation
        self._endpoint = endpoint

    async def read(self, _: object, /, *, call: ReadCall, **given: Any) -> Any:  # noqa: ARG002
        """Make the call. Raises a `ConnectorError`."""
        operation, endpoint = self._operation, self._endpoint
        request = built(operation, given)
        try:
            reply = await endpoint.send(
                operation.method,
                request.target,
                headers=request.headers,
                body=request.body,
                redirects_max=REDIRECTS_MAX,
            )
        except WebError as error:
            raise read_error(error) from error
        if refusal := read_refusal(reply, endpoint.now()):
            raise refusal
        try:
            return result_of(operation, reply)
        except AnswerUnusable as error:
            raise PreconditionFailed(f"{_place(operation)}: {error}") from error


class _Mutation:
    """A call that may have an effect."""

    def __init__(self, operation: HttpOperation, endpoint: HttpEndpoint) -> None:
        self._operation = operation
        self._endpoint = endpoint

    async def mutate(self, _: object, /, *, call: MutationCall, **given: Any) -> Any:
        """Make the call. Raises a `ConnectorError` if it did not happen, and `Uncertain` if nobody knows."""
        operation, endpoint, rules = self._operation, self._endpoint, self._operation.rules
        key = endpoint.key_of(call, rules.key_chars)
        request = built(operation, given, key)
        try:
            reply = await endpoint.send(
                operation.method, request.target, headers=request.headers, body=request.body, sending=call.sending
            )
        except WebError as error:
            meaning = meaning_of_problem(error.problem, is_sent=error.is_sent)
            raise error_of(meaning, f"{_place(operation)}: {error}; {_key(operation, key)}") from error
        about = SentRequest(
            method=operation.method,
            attempt=call.attempt,
            has_key=bool(rules.key_header or rules.key_path),
            has_if_match=any(name.lower() == "if-match" for name in request.headers),
            happened=rules.happened,
            did_not_happen=rules.did_not_happen,
        )
        meaning = meaning_of_status(reply.status, about)
        if meaning is Meaning.ACCEPTED:
            await call.note(_accepted(reply))
        if meaning is not Meaning.HAPPENED:
            words = f"{_place(operation)}: {said(reply)}; {_key(operation, key)}"
            raise error_of(meaning, words, retry_after_ms(reply.headers, endpoint.now()))
        try:
            return result_of(operation, reply)
        except AnswerUnusable as error:
            words = f"{_place(operation)} was answered with {reply.status}, but {error}; {_key(operation, key)}"
            raise Uncertain(words) from error


def _accepted(reply: WebReply) -> str:
    """The note of a call that the service accepted: the address that it named, if it did."""
    location = reply.headers.get("location", "")
    try:
        url = urljoin(reply.url, location)
    except ValueError:  # such as http://[
        return ACCEPTED
    return url if location and url.isprintable() and len(url) <= NOTE_CHARS_MAX else ACCEPTED


def _place(operation: HttpOperation) -> str:
    return f"{operation.method} {operation.path}"


def _key(operation: HttpOperation, key: str) -> str:
    """Say which key the service got, for the person who looks there."""
    rules = operation.rules
    return f"its {rules.key_header or rules.key_path or 'reference'} is {key}"
