"""Every way in which a connector's code can end, and what a read, a mutation and a reconciliation make of it."""

from typing import Any

import pytest

from keep_actors.connectors import (
    Answer,
    Applied,
    AuthRequired,
    Catalog,
    Connector,
    ConnectorBug,
    ConnectorError,
    DidNotHappen,
    Failed,
    Happened,
    InvalidCall,
    MutationCall,
    NotApplied,
    PermissionDenied,
    PreconditionFailed,
    ReadOutcome,
    Retry,
    Transient,
    Uncertain,
    Unknown,
    mutation,
)
from keep_actors.connectors.outcomes import TooEarly
from keep_storage.model import FailureClass as Class
from tests.connectors.world import (
    Receipt,
    Step,
    method_of,
    mutation_call,
    nothing,
    planned,
    raising,
    read_call,
    returning,
)

pytestmark = pytest.mark.anyio

LONG = 60_000


class RowLocked(PreconditionFailed):
    """An author's own."""


class Speechless(Transient):
    def __init__(self) -> None: ...

    def __str__(self) -> str:
        raise ZeroDivisionError


READ_ERRORS: dict[str, tuple[Exception, ReadOutcome]] = {
    "transient": (Transient("busy", retry_after_ms=70), Failed(Class.TRANSIENT, "busy", 70)),
    "auth": (AuthRequired("sign in"), Failed(Class.AUTH, "sign in")),
    "permission": (PermissionDenied("no"), Failed(Class.PERMISSION, "no")),
    "precondition": (PreconditionFailed("gone"), Failed(Class.PRECONDITION, "gone")),
    "logic": (InvalidCall("nonsense"), Failed(Class.LOGIC, "nonsense")),
    "internal": (ConnectorBug("my fault"), Failed(Class.INTERNAL, "my fault")),
    "of no class": (ConnectorError("hm"), Failed(Class.INTERNAL, "hm")),
    "derived": (RowLocked("locked"), Failed(Class.PRECONDITION, "locked")),
    "without words": (AuthRequired(), Failed(Class.AUTH, "AuthRequired")),
    "that cannot speak": (Speechless(), Failed(Class.TRANSIENT, "Speechless")),
}
SURPRISES: dict[str, tuple[Exception, Class, str]] = {
    "timeout": (TimeoutError("too long"), Class.TRANSIENT, "TimeoutError: too long"),
    "connection": (ConnectionResetError("reset"), Class.TRANSIENT, "ConnectionResetError: reset"),
    "os": (OSError(5, "disk"), Class.TRANSIENT, "OSError: [Errno 5] disk"),
    "value": (ValueError("odd"), Class.INTERNAL, "ValueError: odd"),
    "assertion": (AssertionError(), Class.INTERNAL, "AssertionError"),
    "group": (ExceptionGroup("many", [Transient("x")]), Class.INTERNAL, "ExceptionGroup: many (1 sub-exception)"),
}
MISFITS: dict[str, tuple[object, str]] = {
    "a struct with a wrong field": (Receipt(7), "the result does not fit: rowId: expected string, got number"),  # type: ignore[arg-type]
    "a dict without the field": ({}, "the result does not fit: rowId: is required and missing"),
    "nothing": (None, "the result does not fit: expected object, got null"),
    "no JSON": ({"rowId": object()}, "the result is not JSON: Encoding objects of type object is unsupported"),
    "half a character": (Receipt("\ud800"), "the result is not JSON: 'utf-8' codec can't encode"),
}
GOOD = (Receipt("r1"), {"rowId": "r1"}, {"rowId": "r1", "secret": "left out"})


@pytest.mark.parametrize("value", GOOD)
async def test_a_result_that_fits_is_the_answer(value: object) -> None:
    text = '{"rowId":"r1"}'
    look, act = planned("look", returning(value)), planned("act", returning(value))
    assert await look.read(nothing(look), read_call(), LONG) == Answer(text)
    assert await act.mutate(nothing(act), mutation_call(), LONG) == Happened(text)
    found = planned("act", returning(Applied(value)))
    assert await found.reconcile(mutation_call(), LONG) == Applied(text)


@pytest.mark.parametrize("case", READ_ERRORS)
async def test_a_declared_error_has_its_class_and_promises_that_nothing_happened(case: str) -> None:
    error, failed = READ_ERRORS[case]
    assert isinstance(failed, Failed)
    look, act = planned("look", raising(error)), planned("act", raising(error))
    assert await look.read(nothing(look), read_call(), LONG) == failed
    definite = DidNotHappen(failed.cls, failed.message, failed.retry_after_ms)
    assert await act.mutate(nothing(act), mutation_call(), LONG) == definite
    assert await act.reconcile(mutation_call(), LONG) == Retry(failed.message, failed.retry_after_ms)


@pytest.mark.parametrize("case", SURPRISES)
async def test_any_other_exception_leaves_a_mutation_unknown(case: str) -> None:
    error, cls, words = SURPRISES[case]
    look, act = planned("look", raising(error)), planned("act", raising(error))
    assert await look.read(nothing(look), read_call(), LONG) == Failed(cls, words)
    assert await act.mutate(nothing(act), mutation_call(), LONG) == Unknown(words)
    assert await act.reconcile(mutation_call(), LONG) == Retry(words)


async def test_a_mutation_can_say_that_nobody_knows() -> None:
    error = Uncertain("the gateway answered 502")
    look, act = planned("look", raising(error)), planned("act", raising(error))
    assert await act.mutate(nothing(act), mutation_call(), LONG) == Unknown("the gateway answered 502")
    failed = await look.read(nothing(look), read_call(), LONG)
    assert isinstance(failed, Failed)
    assert failed.cls is Class.INTERNAL
    assert failed.message.endswith("Uncertain: the gateway answered 502")


@pytest.mark.parametrize("case", MISFITS)
async def test_a_result_that_does_not_fit_is_a_bug_of_a_read_and_leaves_a_mutation_unknown(case: str) -> None:
    value, words = MISFITS[case]
    look, act = planned("look", returning(value)), planned("act", returning(value))
    found = planned("act", returning(Applied(value)))
    failed = await look.read(nothing(look), read_call(), LONG)
    unknown = await act.mutate(nothing(act), mutation_call(), LONG)
    retry = await found.reconcile(mutation_call(), LONG)
    assert isinstance(failed, Failed)
    assert isinstance(unknown, Unknown)
    assert isinstance(retry, Retry)
    assert failed.cls is Class.INTERNAL
    assert failed.message.startswith(words)
    assert unknown.message.startswith(words)
    assert retry.message.startswith(words)


async def test_an_unforeseen_exception_leaves_its_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    look, act = planned("look", raising(Transient("busy"))), planned("act", raising(ValueError("odd")))
    await look.read(nothing(look), read_call(), LONG)
    assert caplog.records == []
    await act.mutate(nothing(act), mutation_call(), LONG)
    [record] = caplog.records
    assert record.getMessage() == "planned.act raised an undeclared error"
    assert record.exc_info is not None


async def test_a_page_of_an_error_is_cut() -> None:
    for error in (Transient("x" * 100_000), ValueError("x" * 100_000)):
        look = planned("look", raising(error))
        failed = await look.read(nothing(look), read_call(), LONG)
        assert isinstance(failed, Failed)
        assert len(failed.message) == 1000


async def test_the_verdict_of_a_reconciliation_is_handed_on() -> None:
    for verdict in (NotApplied(), Retry("the index is down", 500)):
        assert await planned("act", returning(verdict)).reconcile(mutation_call(), LONG) == verdict


@pytest.mark.parametrize("returned", [None, NotApplied, True, {"status": "applied"}])
async def test_a_reconciliation_that_returns_anything_else_has_not_found_out(returned: object) -> None:
    retry = await planned("act", returning(returned)).reconcile(mutation_call(), LONG)
    assert isinstance(retry, Retry)
    assert retry.message.startswith("reconcile returned ")
    assert retry.message.endswith(", not Applied(…), NotApplied() or Retry(…)")


async def test_not_found_means_nothing_before_the_effect_has_settled() -> None:
    act = planned("actUnseen", returning(NotApplied()))
    for waited_ms, left in ((0, 1000), (999, 1)):
        retry = await act.reconcile(mutation_call(), LONG, waited_ms)
        assert retry == TooEarly("not found, but it is too early to tell", left)
    assert await act.reconcile(mutation_call(), LONG, waited_ms=1000) == NotApplied()
    # Who does not say how long it has waited has not waited.
    assert isinstance(await act.reconcile(mutation_call(), LONG), Retry)


async def test_what_is_found_counts_at_once() -> None:
    act = planned("actUnseen", returning(Applied(Receipt("r1"))))
    assert await act.reconcile(mutation_call(), LONG, waited_ms=0) == Applied('{"rowId":"r1"}')


@pytest.mark.parametrize("step", [returning(Receipt("r1")), raising(Transient("busy"))])
async def test_what_a_call_cost_is_known_whatever_became_of_it(step: Step) -> None:
    look, act = planned("look", step), planned("act", step)
    reading, acting = read_call(), mutation_call()
    await look.read(nothing(look), reading, LONG)
    await act.mutate(nothing(act), acting, LONG)
    assert (reading.cost_micros, acting.cost_micros) == (3, 5)
    await act.reconcile(acting, LONG)
    assert acting.cost_micros == 12


class Notes(Connector):
    """Keeps what it was given, and spoils its arguments."""

    name = "notes"

    def __init__(self) -> None:
        self.got: list[Any] = []

    @mutation
    async def add(self, lines: list[str], call: MutationCall) -> None:
        self.got.append((list(lines), call))
        lines.clear()

    @mutation
    async def ping(self) -> None:
        self.got.append("ping")


async def test_a_mutation_gets_its_parameters_and_its_call() -> None:
    notes = Notes()
    add = method_of(notes, "add")
    params = add.decode_params('{"lines": ["a"]}')
    call = mutation_call(params, key="key_7")
    assert await add.mutate(params, call, LONG) == Happened("null")
    assert notes.got == [(["a"], call)]


async def test_what_a_connector_does_to_its_arguments_is_not_seen_by_its_reconciliation() -> None:
    add = method_of(Notes(), "add")
    params = add.decode_params('{"lines": ["a"]}')
    call = mutation_call(params)
    await add.mutate(params, call, LONG)
    assert call.params == params.values == {"lines": ["a"]}


async def test_a_method_that_does_not_want_the_call_does_not_get_it() -> None:
    notes = Notes()
    ping = method_of(notes, "ping")
    assert await ping.mutate(nothing(ping), mutation_call(), LONG) == Happened("null")
    assert notes.got == ["ping"]


async def test_each_instance_is_called_for_itself() -> None:
    class Diary(Notes):
        name = "diary"

    notes, diary = Notes(), Diary()
    ping = Catalog([notes, diary]).methods["diary.ping"]
    await ping.mutate(nothing(ping), mutation_call(), LONG)
    assert (notes.got, diary.got) == ([], ["ping"])
