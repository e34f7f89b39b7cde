"""Verdicts on single answers that would make a call happen twice if they were too sure."""

import msgspec

from keep_actors.connectors import NotApplied, Retry
from keep_actors.outbound.web import WebReply
from keep_actors.services.http.settings import HttpReconcile
from keep_actors.services.http.verdict import State, verdict_of

RULES = HttpReconcile(
    path="/orders", items="orders", found={"key": "$key"}, more="more", poll_location=True, failed={"status": "failed"}
)


def answer(document: object) -> WebReply:
    return WebReply(200, {}, msgspec.json.encode(document), "https://shop.example.org/orders")


def test_another_call_that_failed_says_nothing_about_this_one() -> None:
    reply = answer({"orders": [{"key": "other", "status": "failed"}], "more": True})
    assert isinstance(verdict_of(reply, RULES, {"key": "k"}, State.ANY), Retry)
    assert isinstance(verdict_of(reply, RULES, {"key": "k"}, State.ACCEPTED), Retry)


def test_a_call_that_failed_at_its_own_address_did_not_happen() -> None:
    reply = answer({"orders": [{"key": "k2", "status": "failed"}], "more": False})
    assert verdict_of(reply, RULES, {"key": "k"}, State.POLLED) == NotApplied()
