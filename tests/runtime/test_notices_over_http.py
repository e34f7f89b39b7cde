"""Webhooks: signed requests to a real server, which does everything wrong; and the signature as a receiver sees it."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import Any

import anyio
import httpx
import msgspec
import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from keep_actors.notices import BadSignature, Notice, Webhook, new_secret, verify
from keep_actors.secret import Secret
from keep_storage.model import DeliveryStatus, JournalEntry, NoticeKind, Says
from tests.maintenance.world import Asked, Plan, a_server, answers, sends
from tests.runtime.fakes import Fake
from tests.runtime.pager import QUICK, calm
from tests.runtime.test_notices import asks
from tests.runtime.world import SECOND, START, world

SECRET = "whsec_aHVzaC0wMTIzNDU2Nzg5YWJjZGVmMDEyMw=="
NEW_SECRET = "whsec_bmV3LTAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg="
MINUTES = 60 * SECOND

NOTICE = Notice(
    id="ntc_1-needs_person",
    says=Says.NEEDS_PERSON,
    matter="ntc_1",
    kind=NoticeKind.UNKNOWN,
    workflow_id="wf_1",
    workflow="orders",
    run_id="run_1",
    about="mut_1",
    call="bank.pay",
    words="Nobody knows.",
    can_do="Look.",
    opened_at=START,
    settled_at=None,
    outcome="",
)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is on this machine, whatever the machine's way to the outside is."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def a_request(
    notice: Notice = NOTICE, *, at: int = START, secret: str = SECRET, body: bytes | None = None
) -> tuple[dict[str, str], bytes]:
    """As a sender makes it, written down a second time."""
    body = msgspec.json.encode(notice) if body is None else body
    key, at_s = base64.b64decode(secret.removeprefix("whsec_")), at // 1000
    mac = hmac.new(key, f"{notice.id}.{at_s}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(mac).decode()}"
    return {"webhook-id": notice.id, "webhook-timestamp": str(at_s), "webhook-signature": signature}, body


# A receiver.


def test_a_genuine_request_is_a_notice() -> None:
    headers, body = a_request()
    assert verify(SECRET, headers, body, now=START) == NOTICE
    assert verify(Secret(SECRET), headers, body, now=START + 5 * MINUTES) == NOTICE
    assert verify(SECRET, headers, body, now=START - 5 * MINUTES) == NOTICE


def test_the_names_of_headers_are_read_in_any_case() -> None:
    headers, body = a_request()
    assert verify(SECRET, {name.title(): value for name, value in headers.items()}, body, now=START) == NOTICE


def test_a_secret_can_be_replaced_by_another_while_both_are_known() -> None:
    old, new = a_request(), a_request(secret=NEW_SECRET)
    both = (NEW_SECRET, SECRET)
    assert [verify(both, *each, now=START) for each in (old, new)] == [NOTICE, NOTICE]
    with pytest.raises(BadSignature, match="does not fit"):
        verify((NEW_SECRET,), *old, now=START)


def test_one_of_several_signatures_is_enough() -> None:
    headers, body = a_request()
    headers["webhook-signature"] = f"v1a,abc v2,x, {headers['webhook-signature']}"
    assert verify(SECRET, headers, body, now=START) == NOTICE


@pytest.mark.parametrize("late", [5 * MINUTES + SECOND, -5 * MINUTES - 1])
def test_a_request_that_is_replayed_late_is_refused_though_it_is_genuine(late: int) -> None:
    headers, body = a_request()
    with pytest.raises(BadSignature, match=f"{abs(late)} ms"):
        verify(SECRET, headers, body, now=START + late)


def test_a_request_whose_time_was_changed_is_refused() -> None:
    headers, body = a_request()
    headers["webhook-timestamp"] = str(START // 1000 + 1)
    with pytest.raises(BadSignature, match="does not fit"):
        verify(SECRET, headers, body, now=START)


def test_a_request_whose_body_was_changed_is_refused() -> None:
    headers, body = a_request()
    for position in range(len(body)):
        changed = body[:position] + bytes([body[position] ^ 1]) + body[position + 1 :]
        with pytest.raises(BadSignature, match="does not fit"):
            verify(SECRET, headers, changed, now=START)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("webhook-id", None, "the header webhook-id is missing"),
        ("webhook-signature", None, "the header webhook-signature is missing"),
        ("webhook-timestamp", None, "the header webhook-timestamp is missing"),
        ("webhook-id", "", "not the id"),
        ("webhook-id", "ntc_1.needs_person", "not the id"),
        ("webhook-timestamp", "soon", "not a number"),
        ("webhook-timestamp", "-1", "not a number"),
        ("webhook-timestamp", "1e9", "not a number"),
        ("webhook-timestamp", "٣", "not text that a header can have"),
        ("webhook-timestamp", "9" * 5_000, "not a number"),
        ("webhook-signature", "", "does not fit"),
        ("webhook-signature", "v1,", "does not fit"),
        ("webhook-signature", "v1,ÿ", "not text that a header can have"),
        ("webhook-signature", "v1,\udcff", "not text that a header can have"),
        ("webhook-signature", "0" * 64, "does not fit"),
    ],
)
def test_headers_that_are_not_as_they_were_sent_are_refused_with_words(
    name: str, value: str | None, words: str
) -> None:
    headers, body = a_request()
    del headers[name]
    with pytest.raises(BadSignature, match=words):
        verify(SECRET, headers if value is None else {**headers, name: value}, body, now=START)


def test_a_signature_without_its_scheme_is_refused() -> None:
    headers, body = a_request()
    headers["webhook-signature"] = headers["webhook-signature"].removeprefix("v1,")
    with pytest.raises(BadSignature, match="does not fit"):
        verify(SECRET, headers, body, now=START)


@pytest.mark.parametrize("body", [b"[" * 10_000, b"", b"{}", b'{"id":"\xff"}', b"null"])
def test_what_is_signed_and_no_notice_is_refused(body: bytes) -> None:
    with pytest.raises(BadSignature, match="not a notice"):
        verify(SECRET, *a_request(body=body), now=START)


def test_a_newer_sender_may_say_more() -> None:
    body = msgspec.json.encode({**msgspec.to_builtins(NOTICE), "more": 1})
    assert verify(SECRET, *a_request(body=body), now=START) == NOTICE


ANY_TEXT = st.text(st.characters())
"""Also with halves of characters, as a server may give what was no UTF-8."""
ANY_VALUE = ANY_TEXT | st.binary() | st.none() | st.integers() | st.lists(ANY_TEXT)
NAMES = st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "Webhook-Signature"])


@given(st.dictionaries(NAMES | ANY_TEXT | st.binary(), ANY_VALUE), st.binary())
def test_no_header_is_anything_but_a_bad_signature(changes: dict[Any, Any], body: bytes) -> None:
    headers: dict[Any, Any] = {**a_request()[0], **changes}
    with pytest.raises(BadSignature):
        verify(SECRET, headers, body, now=START)


@given(st.dictionaries(NAMES, st.text(st.sampled_from("v1a,. =0123456789+/AZ\x00é\udcff"))))
def test_headers_that_look_right_are_refused_too(changes: dict[str, str]) -> None:
    genuine, body = a_request()
    headers = {**genuine, **changes}
    if {name.lower(): value for name, value in headers.items()} != genuine:
        with pytest.raises(BadSignature):
            verify(SECRET, headers, body, now=START)


# A receiver that uses a library for the standard.


@pytest.mark.anyio
async def test_a_ready_verifier_takes_what_is_sent_while_a_secret_is_replaced() -> None:
    """It knows the new secret or the old one; who knows another one takes nothing."""
    async with a_server(answers(204, b"")) as server, httpx.AsyncClient(trust_env=False) as client:
        await Webhook(server.url, secret=(NEW_SECRET, Secret(SECRET)), client=client).deliver(NOTICE)
    [request] = server.asked
    for secret in (NEW_SECRET, SECRET):
        assert standardwebhooks.Webhook(secret).verify(request.body, request.headers) == msgspec.to_builtins(NOTICE)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(new_secret().reveal()).verify(request.body, request.headers)


def test_what_another_sender_of_the_standard_signs_is_verified() -> None:
    body = msgspec.json.encode(NOTICE)
    when = datetime.fromtimestamp(START / 1000, UTC)
    signature = standardwebhooks.Webhook(SECRET).sign(NOTICE.id, when, body.decode())
    headers = {
        "webhook-id": NOTICE.id,
        "webhook-timestamp": str(START // 1000),
        "webhook-signature": signature,
    }
    assert verify(SECRET, headers, body, now=START) == NOTICE


def test_a_new_secret_is_one_for_both_sides_and_no_two_are_the_same() -> None:
    one, other = new_secret(), new_secret()
    assert one.reveal() != other.reveal()
    assert "whsec" not in f"{one} {one!r}"
    standardwebhooks.Webhook(one.reveal())
    assert verify(one, *a_request(secret=one.reveal()), now=START) == NOTICE


# A sender.


class Turns:
    """A plan that answers each request in its own way, and after those all is well."""

    def __init__(self, *plans: Plan) -> None:
        self.plans = list(plans)

    async def __call__(self, stream: anyio.abc.SocketStream) -> None:
        await (self.plans.pop(0) if self.plans else answers(204, b""))(stream)


async def hangs(_: anyio.abc.SocketStream) -> None:
    await anyio.sleep_forever()


async def deliver_all(*plans: Plan, attempts: int, timeout_ms: int = 10_000) -> tuple[list[Asked], str, str]:
    """One notice to a server with this plan: what it was asked, how that ended, and what was wrong at first."""
    now = [START]

    def clock() -> int:
        now[0] += SECOND
        return now[0]

    async with a_server(Turns(*plans)) as server, httpx.AsyncClient(trust_env=False, verify=False) as client:
        webhook = Webhook(
            server.url, secret=SECRET, timeout_ms=timeout_ms, backoff=QUICK, clock=clock, client=client, name="hook"
        )
        async with world(Fake(), notices=webhook, shutdown_grace_ms=1) as box:
            await asks(box)
            await calm(box)
            run, tries = await box.last_run("flow", "file"), list[JournalEntry]()
            with anyio.fail_after(30):
                while len(tries) < attempts:
                    box.time.advance(SECOND)
                    await anyio.wait_all_tasks_blocked()
                    journal = (await box.keep.explain(run.id)).journal
                    tries = [each for each in journal if each.operation == "note_delivery"]
            [told] = await box.keep.notices()
        return server.asked, str(told.sent[0].status), tries[0].why


@pytest.mark.anyio
async def test_a_notice_is_posted_signed_and_delivered_with_any_2xx() -> None:
    asked, status, _ = await deliver_all(answers(202, b"thanks"), attempts=1)
    [request] = asked
    assert status == DeliveryStatus.DELIVERED
    assert request.line == "POST /v1 HTTP/1.1"
    assert request.headers["content-type"] == "application/json"
    notice = verify(SECRET, request.headers, request.body, now=START)
    assert (notice.kind, notice.says, notice.workflow) == ("approval", "needs_person", "flow")
    assert request.headers["webhook-id"] == notice.id
    assert SECRET.encode() not in request.body + str(request.headers).encode()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (answers(500, b"oh no"), "answered 500"),
        (answers(404, b"who?"), "answered 404"),
        (answers(429, b"", "Retry-After: 1"), "answered 429"),
        (answers(302, b"", "Location: http://127.0.0.1:9/elsewhere"), "a redirect is not followed"),
        (sends(bytes(range(256))), "ProtocolError"),
        (sends(b""), "ProtocolError"),
    ],
    ids=["500", "404", "429", "redirect", "bytes", "nothing"],
)
async def test_what_is_not_taken_is_posted_again_with_the_same_id_and_signed_anew(plan: Plan, words: str) -> None:
    asked, status, problem = await deliver_all(plan, attempts=2)
    assert (status, words in problem) == (DeliveryStatus.DELIVERED, True), problem
    first, second = asked
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-timestamp"] != second.headers["webhook-timestamp"]
    assert [verify(SECRET, each.headers, each.body, now=START).id for each in asked] == [
        first.headers["webhook-id"]
    ] * 2


@pytest.mark.anyio
async def test_a_server_that_hangs_is_left_and_asked_again() -> None:
    asked, status, problem = await deliver_all(hangs, attempts=2, timeout_ms=1_000)
    assert (len(asked), status, problem) == (2, DeliveryStatus.DELIVERED, "it took longer than 1000 ms")


@pytest.mark.anyio
async def test_an_endpoint_that_is_gone_is_not_asked_again() -> None:
    asked, status, problem = await deliver_all(answers(410, b""), attempts=1)
    assert (len(asked), status) == (1, DeliveryStatus.GIVEN_UP)
    assert "410" in problem


@pytest.mark.anyio
async def test_an_answer_without_end_is_no_reason_to_wait() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
    asked, status, _ = await deliver_all(sends(head + b"x" * 100_000), attempts=1)
    assert (len(asked), status) == (1, DeliveryStatus.DELIVERED)


@pytest.mark.anyio
async def test_a_server_that_is_down_is_tried_until_it_is_given_up() -> None:
    async with a_server(hangs) as server:
        gone = server.url
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        webhook = Webhook(gone, secret=SECRET, backoff=QUICK, client=client)
        async with world(Fake(), notices=webhook, shutdown_grace_ms=1) as box:
            await asks(box)
            with anyio.fail_after(30):
                while True:
                    found = await box.keep.notices()
                    if found and found[0].sent[0].status is DeliveryStatus.GIVEN_UP:
                        break
                    box.time.advance(SECOND)
                    await anyio.wait_all_tasks_blocked()
            assert found[0].sent[0].attempts == QUICK.attempts_max
