"""The frame decoder and the conversation: whatever bytes a worker sends, the host keeps its rules."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from keep_sandbox import Capabilities, IssuedMutation, Limits, Request, Value
from keep_sandbox.conversation import Conversation, Violation
from keep_sandbox.outcomes import CpuLimit, Kind, Place, ScriptError
from keep_sandbox.protocol import (
    BadFrame,
    EndedFrame,
    FrameReader,
    FromWorker,
    Logged,
    Ready,
    RequestFrame,
    Waits,
    encode,
    from_worker,
)
from tests.fuzz.json_texts import json_texts
from tests.fuzz.target import Target

LIMITS = Limits(host_calls=5, log_lines=5, log_line_chars=50, value_bytes=20_000)
FRAME_BYTES_MAX = 40_000
OFFERED = {"gmail.search": "read", "gmail.send": "mutation"}
CAPABILITIES = Capabilities(peek=True, with_item=True, connectors={"gmail": {"search": "read", "send": "mutation"}})

calls = st.integers(0, 3) | st.sampled_from([2**31, 2**63, -1])
texts = st.text(max_size=80)
endings = (
    st.builds(Value, value=json_texts | texts)
    | st.builds(ScriptError, phase=st.sampled_from(["load", "run"]), name=texts, message=texts, stack=texts)
    | st.builds(CpuLimit, place=st.builds(Place, st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40)))
)
frames: st.SearchStrategy[FromWorker] = st.one_of(
    st.just(Ready()),
    st.builds(Waits, calls),
    st.builds(Logged, calls, texts),
    st.builds(EndedFrame, calls, endings),
    st.builds(
        RequestFrame,
        calls,
        st.integers(-1, 7),
        st.sampled_from(Kind),
        st.sampled_from([*OFFERED, "peek", "publish", "withItem"]) | texts,
        json_texts | texts,
    ),
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["Ready", "RequestFrame", "Logged", "EndedFrame", "Waits", "Run", "Abort", "Value", "ScriptError"]
)


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Frames, near frames and noise, one after the other, and then perhaps a byte of it changed."""
    piece = (
        frames.map(encode)
        | st.tuples(names, st.lists(values, max_size=6)).map(
            lambda said: _framed(msgspec.msgpack.encode([said[0], *said[1]]))
        )
        | st.binary(min_size=1, max_size=60).map(_framed)
        | st.binary(max_size=60)
    )
    # What an honest worker says first: the rest is met inside a conversation, not before it.
    honest = draw(
        st.lists(
            st.just(encode(Logged(1, "x"))) | st.just(encode(RequestFrame(1, 1, Kind.PEEK, "peek", "{}"))),
            max_size=2,
        )
    )
    data = bytearray(b"".join([*honest, *draw(st.lists(piece, max_size=5))]))
    if data and draw(st.booleans()):
        data[draw(st.integers(0, len(data) - 1))] ^= draw(st.integers(1, 255))
    return bytes(data)


def check(data: bytes) -> None:
    """It is frames or `BadFrame`, outcomes or `Violation`, and the same in one piece as byte by byte."""
    whole, pieces = _frames([data]), _frames([data[at : at + 1] for at in range(len(data))])
    assert whole == pieces
    conversation, asked, is_over = Conversation(1, CAPABILITIES, LIMITS), 0, False
    for frame in whole:
        try:
            outcome = conversation.receive(frame)
        except Violation:
            return
        assert not is_over, "nothing is accepted after the end"
        if isinstance(outcome, Request | IssuedMutation):
            asked += 1
            assert outcome.id == asked <= LIMITS.host_calls
            assert outcome.name in OFFERED or outcome.name in ("peek", "withItem")
            msgspec.json.decode(outcome.params)
        if isinstance(outcome, Value):
            msgspec.json.decode(outcome.value)
        is_over = outcome is not None and not isinstance(outcome, Request)
        assert conversation.is_over == is_over
        assert len(conversation.logs) <= LIMITS.log_lines


def _frames(pieces: list[bytes]) -> list[FromWorker]:
    """What is read before the first bad frame."""
    reader, found = FrameReader(from_worker, FRAME_BYTES_MAX), list[FromWorker]()
    try:
        for piece in pieces:
            reader.feed(piece)
            found.extend(reader)
    except BadFrame:
        pass
    return found


TARGET = Target(
    "frames",
    "what a worker sends to its host",
    streams(),
    check,
    read=lambda data: bytes.fromhex(data.decode()),
    write=lambda data: data.hex().encode(),
    suffix=".hex",
)
