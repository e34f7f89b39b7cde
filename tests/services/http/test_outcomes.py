"""The table of statuses, row by row with a real server; and what the operator and an earlier attempt change in it."""

import pytest

from keep_actors.connectors import Answer, DidNotHappen, Failed, Happened, Unknown
from keep_actors.outbound.checked import WebProblem
from keep_actors.services.http import HttpCall
from keep_actors.services.http.outcomes import (
    RETRY_AFTER_MS_MAX,
    Meaning,
    SentRequest,
    meaning_of_problem,
    meaning_of_read_problem,
    meaning_of_status,
    retry_after_ms,
)
from keep_storage.model import FailureClass
from tests.services.http.shop import NOW, ORDER, READ, open_shop
from tests.services.servers.web import Reply, WebServer, json_reply

UNKNOWN = "unknown"
HAPPENED = "happened"
LOGIC, AUTH, PERMISSION = FailureClass.LOGIC, FailureClass.AUTH, FailureClass.PERMISSION
TRANSIENT, PRECONDITION, INTERNAL = FailureClass.TRANSIENT, FailureClass.PRECONDITION, FailureClass.INTERNAL

ROWS = {
    200: (HAPPENED, HAPPENED),
    201: (HAPPENED, HAPPENED),
    202: (UNKNOWN, HAPPENED),
    203: (HAPPENED, HAPPENED),
    204: (HAPPENED, HAPPENED),
    207: (HAPPENED, HAPPENED),
    300: (UNKNOWN, PRECONDITION),
    304: (UNKNOWN, PRECONDITION),
    400: (LOGIC, LOGIC),
    401: (AUTH, AUTH),
    402: (PRECONDITION, PRECONDITION),
    403: (PERMISSION, PERMISSION),
    404: (PRECONDITION, PRECONDITION),
    405: (LOGIC, LOGIC),
    406: (LOGIC, LOGIC),
    407: (INTERNAL, INTERNAL),
    408: (UNKNOWN, TRANSIENT),
    409: (UNKNOWN, PRECONDITION),
    410: (PRECONDITION, PRECONDITION),
    411: (LOGIC, LOGIC),
    412: (PRECONDITION, PRECONDITION),
    413: (LOGIC, LOGIC),
    414: (LOGIC, LOGIC),
    415: (LOGIC, LOGIC),
    418: (UNKNOWN, PRECONDITION),
    421: (TRANSIENT, TRANSIENT),
    422: (LOGIC, LOGIC),
    423: (PRECONDITION, PRECONDITION),
    424: (PRECONDITION, PRECONDITION),
    425: (TRANSIENT, TRANSIENT),
    428: (PRECONDITION, PRECONDITION),
    429: (TRANSIENT, TRANSIENT),
    431: (LOGIC, LOGIC),
    451: (PERMISSION, PERMISSION),
    499: (UNKNOWN, TRANSIENT),
    500: (UNKNOWN, TRANSIENT),
    501: (LOGIC, LOGIC),
    502: (UNKNOWN, TRANSIENT),
    503: (UNKNOWN, TRANSIENT),
    504: (UNKNOWN, TRANSIENT),
    505: (LOGIC, LOGIC),
    507: (UNKNOWN, TRANSIENT),
    520: (UNKNOWN, TRANSIENT),
    599: (UNKNOWN, TRANSIENT),
}
"""For a mutation, and for a read. Redirects with an address are in test_faults.py and test_reach.py."""


def told(outcome: object) -> object:
    match outcome:
        case Unknown():
            return UNKNOWN
        case Happened() | Answer():
            return HAPPENED
        case DidNotHappen(cls=cls) | Failed(cls=cls):
            return cls
    raise AssertionError(outcome)


@pytest.mark.anyio
async def test_a_status_means_what_its_row_says_for_a_mutation_and_for_a_read() -> None:
    answers = iter([status for status in ROWS for _ in range(2)])
    with WebServer(lambda _: Reply(next(answers), b"")) as server:
        async with open_shop(server, calls={"order": ORDER, "orders": READ}) as shop:
            seen = {status: (told(await shop.mutate("order")), told(await shop.read("orders"))) for status in ROWS}
    assert seen == ROWS


@pytest.mark.anyio
async def test_the_words_of_an_error_quote_the_service_and_name_the_key() -> None:
    with WebServer(lambda _: json_reply({"error": "no \u202e cups"}, 400)) as server:
        async with open_shop(server, calls={"order": ORDER}) as shop:
            outcome = await shop.mutate("order")
            assert isinstance(outcome, DidNotHappen)
            assert outcome.message.startswith('POST /orders: 400 Bad Request: "')
            assert "\u202e" not in outcome.message
            assert f"its Idempotency-Key is {server.received[0].headers['idempotency-key']}" in outcome.message


@pytest.mark.anyio
async def test_the_wait_that_a_service_asks_for_is_passed_on() -> None:
    with WebServer(lambda _: Reply(429, b"", {"retry-after": "17"})) as server:
        async with open_shop(server, calls={"order": ORDER, "orders": READ}) as shop:
            outcome, failed = await shop.mutate("order"), await shop.read("orders")
            assert isinstance(outcome, DidNotHappen)
            assert isinstance(failed, Failed)
            assert outcome.retry_after_ms == failed.retry_after_ms == 17_000


@pytest.mark.anyio
async def test_an_operator_may_know_more_about_a_status() -> None:
    knows = HttpCall(
        method="POST", path="/x", body={"status": "integer"}, happened=[202, 409], did_not_happen=[503, 418]
    )
    with WebServer(lambda each: Reply(each.json["status"], b"{}")) as server:
        async with open_shop(server, calls={"order": knows}) as shop:
            seen = {
                status: told(await shop.mutate("order", {"status": status})) for status in (202, 409, 503, 418, 500)
            }
    assert seen == {202: HAPPENED, 409: HAPPENED, 503: TRANSIENT, 418: PRECONDITION, 500: UNKNOWN}


AGAIN = [
    (404, SentRequest("DELETE", attempt=2), Meaning.UNKNOWN),
    (410, SentRequest("DELETE", attempt=2), Meaning.UNKNOWN),
    (404, SentRequest("DELETE"), Meaning.PRECONDITION),
    (404, SentRequest("POST", attempt=2), Meaning.PRECONDITION),
    (412, SentRequest("PUT", attempt=2, has_if_match=True), Meaning.UNKNOWN),
    (412, SentRequest("PUT", has_if_match=True), Meaning.PRECONDITION),
    (412, SentRequest("PUT", attempt=2), Meaning.PRECONDITION),
    (422, SentRequest("POST", attempt=2, has_key=True), Meaning.BUG),
    (422, SentRequest("POST", has_key=True), Meaning.INVALID),
    (422, SentRequest("POST", attempt=2), Meaning.INVALID),
    (404, SentRequest("DELETE", attempt=2, happened=[404]), Meaning.HAPPENED),
    (404, SentRequest("DELETE", attempt=2, did_not_happen=[404]), Meaning.PRECONDITION),
]


@pytest.mark.parametrize(("status", "request_", "meaning"), AGAIN)
def test_an_earlier_attempt_may_be_the_reason_for_a_status(
    status: int, request_: SentRequest, meaning: Meaning
) -> None:
    assert meaning_of_status(status, request_) is meaning


@pytest.mark.anyio
async def test_a_second_delete_that_finds_nothing_is_unknown() -> None:
    cancel = HttpCall(method="DELETE", path="/orders/{id}", parameters={"id": "string"}, answer="none")
    with WebServer(lambda _: Reply(404, b"")) as server:
        async with open_shop(server, calls={"cancel": cancel}) as shop:
            assert told(await shop.mutate("cancel", {"id": "7"}, attempt=1)) is PRECONDITION
            assert told(await shop.mutate("cancel", {"id": "7"}, attempt=2)) is UNKNOWN


@pytest.mark.anyio
async def test_a_second_change_under_a_condition_that_no_longer_holds_is_unknown() -> None:
    change = HttpCall(method="PUT", path="/cup", header_parameters={"If-Match": "string"}, body={"size": "integer"})
    with WebServer(lambda _: Reply(412, b"")) as server:
        async with open_shop(server, calls={"change": change}) as shop:
            params = {"ifMatch": '"v1"', "size": 3}
            assert told(await shop.mutate("change", params, attempt=1)) is PRECONDITION
            assert told(await shop.mutate("change", params, attempt=2)) is UNKNOWN
            assert server.received[0].headers["if-match"] == '"v1"'


@pytest.mark.parametrize("problem", WebProblem)
def test_without_an_answer_only_a_request_that_was_not_sent_did_not_happen(problem: WebProblem) -> None:
    assert meaning_of_problem(problem, is_sent=True) is Meaning.UNKNOWN
    is_certain = problem not in (WebProblem.TOO_LARGE, WebProblem.ENCODED, WebProblem.REDIRECTED)
    assert (meaning_of_problem(problem, is_sent=False) is not Meaning.UNKNOWN) is is_certain
    assert meaning_of_read_problem(problem) not in (Meaning.UNKNOWN, Meaning.HAPPENED, Meaning.ACCEPTED)


WAITS = {
    "0": 0,
    "120": 120_000,
    "99999999999999999999": RETRY_AFTER_MS_MAX,
    "Tue, 14 Nov 2023 22:13:30 GMT": 10_000,
    "Tue, 14 Nov 2023 22:13:10 GMT": 0,
    "Tue, 14 Nov 2090 22:13:30 GMT": RETRY_AFTER_MS_MAX,
    "-5": None,
    "soon": None,
    "": None,
    "٣": None,
}


@pytest.mark.parametrize("text", WAITS)
def test_a_wait_is_seconds_or_a_date_and_bounded(text: str) -> None:
    assert retry_after_ms({"retry-after": text}, NOW) == WAITS[text]
