"""The host's side of the conversation, fuzzed: hostile bytes are refused, and cost neither the host nor its time."""

import json
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keep_sandbox import Capabilities, Invocation, IssuedMutation, Limits, Request, Value
from keep_sandbox.conversation import Conversation, Violation
from keep_sandbox.json_text import UnfitText, check_json
from keep_sandbox.outcomes import Kind
from keep_sandbox.protocol import (
    AnswerFrame,
    BadFrame,
    EndedFrame,
    FrameReader,
    FromWorker,
    Logged,
    Ready,
    RequestFrame,
    RunFrame,
    Source,
    ToWorker,
    Waits,
    encode,
    from_worker,
    to_worker,
)
from tests.sandbox.world import GMAIL

LIMITS = Limits()
FRAME_BYTES_MAX = 4096

values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
json_values = st.recursive(
    st.integers() | st.text('[]{}"\\ax'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\a'), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["Ready", "RequestFrame", "Logged", "EndedFrame", "Waits", "RunFrame", "Abort", "Exited", "", "x"]
)
frames: st.SearchStrategy[FromWorker] = st.one_of(
    st.just(Ready()),
    st.builds(Waits, st.integers(0, 3)),
    st.builds(Logged, st.integers(0, 3), st.text(max_size=50)),
    st.builds(
        EndedFrame, st.integers(0, 3), st.builds(Value, value=st.sampled_from(["1", "{", "[[[[", '"\\ud800"', ""]))
    ),
    st.builds(
        RequestFrame,
        st.integers(0, 3),
        st.integers(-1, 4),
        st.sampled_from(Kind),
        st.sampled_from(["gmail.search", "gmail.send", "peek", "publish", "withItem", "x"]),
        st.sampled_from(["{}", "[1]", "{", "nul"]),
    ),
)


def read_all(data: bytes, pieces: list[int]) -> list[FromWorker]:
    """Feed the bytes in pieces of these sizes, and return the frames up to the first bad one."""
    reader = FrameReader(from_worker, FRAME_BYTES_MAX)
    found: list[FromWorker] = []
    at = 0
    for size in [*pieces, len(data)]:
        reader.feed(data[at : at + size])
        at += size
        found.extend(reader)
    return found


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=20))
def test_arbitrary_bytes_are_frames_or_refused(data: bytes, pieces: list[int]) -> None:
    try:
        read_all(data, pieces)
    except BadFrame:
        return


@settings(max_examples=200, deadline=None)
@given(names, st.lists(values, max_size=6))
def test_a_frame_with_the_right_name_and_wrong_contents_is_refused(name: str, fields: list[object]) -> None:
    body = msgspec.msgpack.encode([name, *fields])
    try:
        found = read_all(len(body).to_bytes(4, "big") + body, [])
    except BadFrame:
        return
    assert all(encode(frame) for frame in found) or len(body) > FRAME_BYTES_MAX


@settings(max_examples=200, deadline=None)
@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 40), max_size=20))
def test_frames_arrive_as_they_were_sent_however_they_are_cut(sent: list[FromWorker], pieces: list[int]) -> None:
    assert read_all(b"".join(map(encode, sent)), pieces) == sent


@settings(max_examples=200, deadline=None)
@given(st.lists(frames, min_size=1, max_size=4), st.integers(0, 200), st.integers(1, 255))
def test_a_frame_with_a_changed_byte_is_a_frame_or_refused(sent: list[FromWorker], at: int, change: int) -> None:
    data = bytearray(b"".join(map(encode, sent)))
    data[at % len(data)] ^= change
    try:
        read_all(bytes(data), [])
    except BadFrame:
        return


@settings(max_examples=400, deadline=None)
@given(st.lists(frames, max_size=12))
def test_whatever_a_worker_says_the_conversation_stays_within_its_rules(said: list[FromWorker]) -> None:
    conversation = Conversation(1, GMAIL, LIMITS)
    ids: list[int] = []
    over = False
    for frame in said:
        try:
            outcome = conversation.receive(frame)
        except Violation:
            return
        assert not over, "nothing is accepted after the end"
        if isinstance(outcome, Request | IssuedMutation):
            ids.append(outcome.id)
            assert outcome.name in ("gmail.search", "gmail.send")
            assert msgspec.json.decode(outcome.params) is not None
        over = outcome is not None and not isinstance(outcome, Request)
        assert conversation.is_over == over
    assert ids == list(range(1, len(ids) + 1))


@pytest.mark.parametrize("depth", [63, 64, 65, 1_000, 500_000])
def test_depth_is_measured_without_recursion(depth: int) -> None:
    text = "[" * depth + "]" * depth
    if depth <= 64:
        check_json(text, LIMITS)
    else:
        with pytest.raises(UnfitText):
            check_json(text, LIMITS)


def test_a_wide_value_is_not_a_deep_one() -> None:
    check_json("[" + ",".join(['{"a":[]}'] * 1000) + "]", LIMITS)


@pytest.mark.parametrize("inside", ["[" * 100, "{" * 100, '\\"[' * 100, "\\\\[" * 100])
def test_brackets_inside_strings_do_not_count(inside: str) -> None:
    check_json(f'[["{inside}"],{{"{inside}":[]}}]', LIMITS)
    with pytest.raises(UnfitText):
        check_json("[" * 64 + f'["{inside}"]' + "]" * 64, LIMITS)


@given(json_values)
def test_the_depth_of_a_value_is_what_its_parts_say(value: object) -> None:
    def depth(part: object) -> int:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    text = json.dumps(value, ensure_ascii=False)
    deep = depth(value)
    check_json(text, msgspec.structs.replace(LIMITS, value_depth=max(deep, 1)))
    if deep > 1:
        with pytest.raises(UnfitText):
            check_json(text, msgspec.structs.replace(LIMITS, value_depth=deep - 1))


@pytest.mark.parametrize("length", [0, FRAME_BYTES_MAX + 1, 2**32 - 1])
def test_a_length_that_cannot_be_is_refused_before_anything_is_kept(length: int) -> None:
    reader = FrameReader(from_worker, FRAME_BYTES_MAX)
    reader.feed(length.to_bytes(4, "big"))
    with pytest.raises(BadFrame):
        reader.next()


def test_a_worker_obeys_six_words_and_says_five() -> None:
    # Each of them is used by the runtime: what only tests used is a door that nobody watches.
    obeys = {"Source", "Forget", "RunFrame", "Inspect", "AnswerFrame", "Abort"}
    assert {each.__name__ for each in get_args(ToWorker)} == obeys
    says = {"Ready", "RequestFrame", "Logged", "Waits", "EndedFrame"}
    assert {each.__name__ for each in get_args(FromWorker)} == says
    body = msgspec.msgpack.encode(["Reject", 1, 1, "no"])
    reader = FrameReader(to_worker, FRAME_BYTES_MAX)
    reader.feed(len(body).to_bytes(4, "big") + body)
    with pytest.raises(BadFrame):
        reader.next()


def test_what_the_host_sends_is_what_a_worker_reads() -> None:
    invocation = Invocation(
        source="é😀", handler="producers.a", args="[1]", capabilities=Capabilities(peek=True), now_ms=2**53, seed=-1
    )
    order = RunFrame(1, 7, "producers.a", "[1]", Capabilities(peek=True), 2**53, -1, None)
    sent = [
        Source(7, "é😀"),
        order,
        RunFrame(2, 7, "jobs.b", "[]", Capabilities(), 0, 0, LIMITS),
        AnswerFrame(1, 2, "{}"),
    ]
    reader = FrameReader(to_worker, 1 << 20)
    reader.feed(b"".join(map(encode, sent)))
    assert list(reader) == sent
    assert order.invocation("é😀") == invocation


def test_a_script_that_waits_for_nothing_is_refused() -> None:
    # Its time does not count while it waits, so it would wait for ever.
    with pytest.raises(Violation, match="waits for nothing"):
        Conversation(1, GMAIL, LIMITS).receive(Waits(1))


def test_a_script_may_wait_for_answers_that_are_under_way() -> None:
    conversation = Conversation(1, GMAIL, LIMITS)
    for number in (1, 2):
        conversation.receive(RequestFrame(1, number, Kind.READ, "gmail.search", "{}"))
    assert conversation.answered(1)
    assert conversation.answered(2)
    # The worker had not read either when it wrote this; each of the two answers is a turn of its own.
    conversation.receive(Waits(1))
    conversation.receive(Waits(1))
    with pytest.raises(Violation, match="waits for nothing"):
        conversation.receive(Waits(1))


def test_the_bytes_of_a_call_are_counted_over_all_its_frames() -> None:
    conversation = Conversation(1, GMAIL, LIMITS)
    conversation.receive(Logged(1, "x"), LIMITS.invocation_bytes)
    with pytest.raises(Violation, match="bytes"):
        conversation.receive(Logged(1, "x"), 1)
