"""Finding out an outcome: by a declared GET, at the address that the service named, or by the same call again."""

from collections.abc import Callable
from typing import Any

import pytest

from keep_actors.connectors import Applied, Happened, NotApplied, Retry, Unknown
from keep_actors.connectors.outcomes import TooEarly
from keep_actors.services.http import HttpCall, HttpReconcile
from keep_actors.services.http.settings import Plain
from tests.services.http.shop import NOW, open_shop
from tests.services.servers.web import BROKEN, UNUSABLE, Fault, Received, Reply, WebServer, json_reply

pytestmark = pytest.mark.anyio

MINUTE = 60_000
HOUR = 60 * MINUTE
BY_KEY: dict[str, Plain] = {"reference": "$key"}


def asking(**how: Any) -> HttpCall:
    given = {"path": "/orders", "query": {"reference": "$key"}, "items": "orders", "found": BY_KEY, **how}
    return HttpCall(
        method="POST",
        path="/orders",
        body={"item": "string", "number": "integer?"},
        reference_path="reference",
        reconcile=HttpReconcile(**given),
    )


def listed(*orders: dict[str, Any], **more: Any) -> Callable[[Received], Reply]:
    """Answer with these orders; the word KEY in them is the key that is asked for."""

    def answer(request: Received) -> Reply:
        key = request.query.get("reference", "")
        known = [{name: key if value == "KEY" else value for name, value in each.items()} for each in orders]
        return json_reply({"orders": known, **more})

    return answer


FOUND = {"id": 7, "reference": "KEY"}
OTHER = {"id": 8, "reference": "another"}
VERDICTS: dict[str, tuple[Callable[[Received], Reply], type]] = {
    "it is there": (listed(OTHER, FOUND), Applied),
    "nothing is there": (listed(), NotApplied),
    "others than were asked for are there": (listed(OTHER), Retry),
    "others without a reference are there": (listed({"id": 9}), Retry),
    "it is there among others without one": (listed({"id": 9}, FOUND), Applied),
    "there are more pages by a declared field": (listed(OTHER, next="/orders?page=2"), Retry),
    "there are more pages by a link": (
        lambda _: json_reply({"orders": []}, link='</orders?page=2>; rel="next"'),
        Retry,
    ),
    "there are no more pages": (listed(next=None), NotApplied),
    "no list": (lambda _: json_reply({"commands": []}), Retry),
    "null instead of a list": (lambda _: json_reply({"orders": None}), Retry),
    "no JSON": (lambda _: Reply(200, b"<html>"), Retry),
    "nothing at all": (lambda _: Reply(200, b""), Retry),
    "partial content": (lambda _: json_reply({"orders": []}, 206), Retry),
    "not found": (lambda _: Reply(404, b""), Retry),
    "not allowed": (lambda _: Reply(403, b""), Retry),
    "a redirect": (lambda _: Reply(302, b"", {"location": "/login"}), Retry),
    "out of order": (lambda _: Reply(503, b"", {"retry-after": "7"}), Retry),
}


@pytest.mark.parametrize("case", VERDICTS)
async def test_only_a_whole_and_well_formed_answer_decides(case: str) -> None:
    answer, expected = VERDICTS[case]
    with WebServer(answer) as server:
        async with open_shop(server, calls={"order": asking(more="next")}) as shop:
            verdict = await shop.reconcile("order")
            assert type(verdict) is expected
            if isinstance(verdict, Applied):
                assert '"id":7' in verdict.result
            if case == "out of order":
                assert isinstance(verdict, Retry)
                assert verdict.retry_after_ms == 7_000
        assert [(each.method, each.path) for each in server.received] == [("GET", "/orders")]


@pytest.mark.parametrize("fault", [*BROKEN.values(), *UNUSABLE.values()], ids=lambda each: each.__name__)
async def test_an_answer_that_breaks_off_decides_nothing(fault: Fault) -> None:
    with WebServer(fault=fault) as server:
        async with open_shop(server, calls={"order": asking()}, timeout_s=0.2, bytes_max=100_000) as shop:
            assert isinstance(await shop.reconcile("order"), Retry)


async def test_others_prove_nothing_only_if_the_query_asked_for_what_they_do_not_have() -> None:
    by_item = asking(query={"item": "$item"}, found={"item": "$item", **BY_KEY})
    same = [{"item": "cup", "reference": "another"}]
    other = [*same, {"item": "plate", "reference": "another"}]
    answers = iter([same, other])
    with WebServer(lambda _: json_reply({"orders": next(answers)})) as server:
        async with open_shop(server, calls={"order": by_item}) as shop:
            assert await shop.reconcile("order") == NotApplied()
            assert isinstance(await shop.reconcile("order"), Retry)


async def test_a_value_that_the_call_does_not_have_is_found_in_nothing() -> None:
    by_number = asking(query={}, found={"number": "$number"})
    with WebServer(listed({"id": 7, "number": None})) as server:
        async with open_shop(server, calls={"order": by_number}) as shop:
            assert isinstance(await shop.reconcile("order"), Retry)


async def test_the_key_that_was_sent_is_the_one_that_is_looked_for() -> None:
    orders: list[dict[str, Any]] = []

    def answer(request: Received) -> Reply:
        if request.method == "POST":
            orders.append({"id": len(orders), **request.json})
            return Reply(500, b"")
        return json_reply({"orders": [each for each in orders if each["reference"] == request.query["reference"]]})

    with WebServer(answer) as server:
        async with open_shop(server, calls={"order": asking()}) as shop:
            assert await shop.reconcile("order") == NotApplied()
            assert isinstance(await shop.mutate("order"), Unknown)
            found = await shop.reconcile("order")
            assert isinstance(found, Applied)
            assert '"item":"cup"' in found.result
            assert await shop.reconcile("order", idempotency_key="k-2") == NotApplied()


async def test_statuses_that_the_operator_declared_decide() -> None:
    cancel = HttpCall(
        method="DELETE",
        path="/orders/{id}",
        parameters={"id": "string"},
        answer="none",
        reconcile=HttpReconcile(path="/orders/{id}", applied=[404, 410], not_applied=[200]),
    )
    statuses = {404: Applied("null"), 410: Applied("null"), 200: NotApplied()}
    answers = iter([*statuses, 500])
    with WebServer(lambda _: Reply(next(answers), b"{}")) as server:
        async with open_shop(server, calls={"cancel": cancel}) as shop:
            for verdict in statuses.values():
                assert await shop.reconcile("cancel", {"id": "a b"}) == verdict
            assert isinstance(await shop.reconcile("cancel", {"id": "a b"}), Retry)
        assert {each.target for each in server.received} == {"/orders/a%20b"}


async def test_a_number_that_the_service_writes_as_text_is_the_same() -> None:
    by_number = asking(path="/orders/{number}", query={}, items="", found={"number": "$number"})
    spellings = iter(["7", 7, 7.0])
    with WebServer(lambda _: json_reply({"number": next(spellings)})) as server:
        async with open_shop(server, calls={"order": by_number}) as shop:
            for _ in range(3):
                assert isinstance(await shop.reconcile("order", {"item": "cup", "number": 7}), Applied)


async def test_the_result_is_the_declared_part_of_what_was_found() -> None:
    with WebServer(lambda each: json_reply({"orders": [{"of": each.query, "order": {"id": 7}}]})) as server:
        call = asking(found={"of.reference": "$key"}, result="order")
        async with open_shop(server, calls={"order": call}) as shop:
            assert await shop.reconcile("order") == Applied('{"id":7}')


async def test_an_absence_counts_only_after_the_time_to_settle() -> None:
    call = HttpCall(
        method="POST",
        path="/orders",
        settle_ms=60_000,
        reference_path="reference",
        reconcile=HttpReconcile(path="/orders", items="orders", found=BY_KEY),
    )
    with WebServer(listed()) as server:
        async with open_shop(server, calls={"order": call}) as shop:
            method, made = shop.methods["order"], shop.call("order", {})
            assert isinstance(await method.reconcile(made, 5_000, 59_000), TooEarly)
            assert await method.reconcile(made, 5_000, 60_000) == NotApplied()


# A call that was accepted.


def polling(**how: Any) -> HttpCall:
    look = HttpReconcile(poll_location=True, found={"state": "done"}, failed={"state": "failed"}, result="order", **how)
    return HttpCall(method="POST", path="/orders", body={"item": "string"}, reconcile=look)


async def test_an_accepted_call_is_looked_up_where_the_service_said() -> None:
    states = iter(["queued", "done", "failed"])

    def answer(request: Received) -> Reply:
        if request.method == "POST":
            return json_reply({}, 202, location="jobs/7?x=1")
        return json_reply({"state": next(states), "order": {"id": 7}})

    with WebServer(answer) as server:
        async with open_shop(server, calls={"order": polling()}) as shop:
            outcome = await shop.mutate("order")
            assert isinstance(outcome, Unknown)
            assert shop.notes == [f"{server.url}/jobs/7?x=1"]
            told = [await shop.reconcile("order", earlier_note=shop.notes[0]) for _ in range(3)]
            assert [type(each) for each in told] == [Retry, Applied, NotApplied]
            assert told[1] == Applied('{"id":7}')
        assert server.received[1].target == "/jobs/7?x=1"


async def test_an_address_elsewhere_is_not_asked() -> None:
    with WebServer() as server, WebServer() as elsewhere:
        async with open_shop(server, calls={"order": polling()}) as shop:
            for url in (f"{elsewhere.url}/jobs/7", "file:///etc/passwd", "https://127.0.0.1/x"):
                assert isinstance(await shop.reconcile("order", earlier_note=url), Retry)
        assert (server.received, elsewhere.received) == ([], [])


async def test_a_status_of_a_polled_address_proves_nothing() -> None:
    look = polling(path="/orders/{key}", applied=[201], not_applied=[404])
    with WebServer(lambda _: Reply(404, b"")) as server:
        async with open_shop(server, calls={"order": look}) as shop:
            assert isinstance(await shop.reconcile("order", earlier_note=f"{server.url}/jobs/7"), Retry)
            assert await shop.reconcile("order") == NotApplied()


async def test_the_absence_of_an_accepted_call_proves_nothing() -> None:
    def answer(request: Received) -> Reply:
        return json_reply({}, 202) if request.method == "POST" else listed()(request)

    with WebServer(answer) as server:
        async with open_shop(server, calls={"order": asking()}) as shop:
            assert isinstance(await shop.mutate("order"), Unknown)
            assert isinstance(await shop.reconcile("order", earlier_note=shop.notes[0]), Retry)


@pytest.mark.parametrize("location", ["http://[", "http://[::1]x/", "//[", "http://a:b/"])
async def test_an_accepted_call_is_noted_even_if_its_address_cannot_be_read(location: str) -> None:
    def answer(request: Received) -> Reply:
        return json_reply({}, 202, location=location) if request.method == "POST" else listed()(request)

    with WebServer(answer) as server:
        async with open_shop(server, calls={"order": asking()}) as shop:
            assert isinstance(await shop.mutate("order"), Unknown)
            assert isinstance(await shop.reconcile("order", earlier_note=shop.notes[0]), Retry)


async def test_without_an_address_there_is_nothing_to_poll() -> None:
    with WebServer() as server:
        async with open_shop(server, calls={"order": polling()}) as shop:
            assert isinstance(await shop.reconcile("order"), Retry)
            assert server.received == []


# The same call again.

REPLAYED = HttpCall(method="POST", path="/orders", body={"item": "string"}, replay=True, key_lifetime="1h")


def once() -> Callable[[Received], Reply]:
    """A service that answers a repeated key with its first answer."""
    known: dict[str, Reply] = {}

    def answer(request: Received) -> Reply:
        first = json_reply({"id": len(known) + 1, **request.json}, 201)
        return known.setdefault(request.headers["idempotency-key"], first)

    return answer


async def test_the_same_call_with_its_key_brings_the_first_answer() -> None:
    with WebServer(once()) as server:
        async with open_shop(server, calls={"order": REPLAYED}, now=lambda: NOW + MINUTE) as shop:
            happened = await shop.mutate("order")
            assert happened == Happened('{"id":1,"item":"cup"}')
            assert await shop.reconcile("order") == Applied('{"id":1,"item":"cup"}')
        first, second = server.received
        assert (first.target, first.body, first.headers) == (second.target, second.body, second.headers)


TOO_LATE = [HOUR - 6 * MINUTE, HOUR, 30 * 24 * HOUR, -1]


@pytest.mark.parametrize("age_ms", TOO_LATE)
async def test_a_key_that_may_be_forgotten_is_not_repeated(age_ms: int) -> None:
    with WebServer(once()) as server:
        async with open_shop(server, calls={"order": REPLAYED}, now=lambda: NOW + age_ms) as shop:
            assert isinstance(await shop.reconcile("order"), Retry)
            assert server.received == []


async def test_a_key_is_repeated_until_shortly_before_its_end() -> None:
    with WebServer(once()) as server:
        async with open_shop(server, calls={"order": REPLAYED}, now=lambda: NOW + HOUR - 6 * MINUTE - 1) as shop:
            assert isinstance(await shop.reconcile("order"), Applied)


@pytest.mark.parametrize("about", [{"attempt": 2}, {"sent_at": None}])
async def test_a_key_of_unknown_age_is_not_repeated(about: dict[str, Any]) -> None:
    with WebServer(once()) as server:
        async with open_shop(server, calls={"order": REPLAYED}, now=lambda: NOW) as shop:
            assert isinstance(await shop.reconcile("order", **about), Retry)
            assert server.received == []


@pytest.mark.parametrize("status", [202, 302, 400, 401, 404, 409, 410, 422, 429, 500, 503])
async def test_a_refusal_of_the_repeated_call_proves_nothing(status: int) -> None:
    with WebServer(lambda _: Reply(status, b"{}")) as server:
        async with open_shop(server, calls={"order": REPLAYED}, now=lambda: NOW) as shop:
            assert isinstance(await shop.reconcile("order"), Retry)
            assert len(server.received) == 1


@pytest.mark.parametrize("fault", [*BROKEN.values(), *UNUSABLE.values()], ids=lambda each: each.__name__)
async def test_a_repeated_call_that_breaks_off_proves_nothing(fault: Fault) -> None:
    with WebServer(fault=fault) as server:
        calls = {"order": REPLAYED}
        async with open_shop(server, calls=calls, timeout_s=0.2, bytes_max=100_000, now=lambda: NOW) as shop:
            assert isinstance(await shop.reconcile("order"), Retry)


async def test_without_either_way_a_person_is_asked_and_told_where_to_look() -> None:
    plain = HttpCall(method="POST", path="/orders", body={"item": "string"})
    with WebServer(lambda _: Reply(500, b"")) as server:
        async with open_shop(server, calls={"order": plain}) as shop:
            method = shop.methods["order"]
            assert not method.reconcilable
            assert method.check_hint == f"Look at {server.url} for the effect of POST /orders."
            outcome = await shop.mutate("order")
            assert isinstance(outcome, Unknown)
            assert server.received[0].headers["idempotency-key"] in outcome.message
