"""The control protocol: every line is answered, whatever came before it, and none of them is a bug in the log."""

import json
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from anyio.from_thread import start_blocking_portal
from hypothesis import strategies as st

from keep_actors.api.command import Command
from keep_actors.control import bounds, protocol
from keep_actors.control.place import connect, place_of
from keep_actors.control.protocol import REQUESTS, Follow
from tests.control.test_control import controlled
from tests.fuzz.target import Target

WORDS: Final = st.sampled_from(["flow", "in", "fake.add", "1.0", "", "ann", "m1"])
TEXT: Final = WORDS | st.text(max_size=20)
NUMBER: Final = st.integers() | st.sampled_from([0, 1, -1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**400])
LEAF: Final = st.none() | st.booleans() | NUMBER | st.floats(allow_nan=False) | TEXT
JSON: Final = st.recursive(LEAF, lambda each: st.lists(each, max_size=5) | st.dictionaries(TEXT, each, max_size=5))
FIELDS: Final = sorted({field for each in REQUESTS for field in each.__struct_fields__})
TAGS: Final = [str(each.__struct_config__.tag) for each in REQUESTS]
GRANT: Final = st.fixed_dictionaries(
    {"permission": TEXT}, optional={"policy": st.sampled_from(["allow", "ask"]), "per_run": NUMBER, "per_day": NUMBER}
)
LIKELY: Final = {
    "v": st.just(1),
    "verdict": st.sampled_from(["happened", "did_not_happen", "skip"]),
    "grant": GRANT,
    "grants": st.lists(GRANT, max_size=3) | st.just("declared"),
    "after": NUMBER,
    "version": NUMBER | WORDS,
    "item_ids": st.lists(TEXT, max_size=5) | st.none(),
    "state": st.sampled_from(["failed", "done", "processing"]) | st.none(),
    "retry": st.booleans(),
    "major": st.booleans(),
    "drop": st.lists(TEXT, max_size=3),
    "move": st.dictionaries(TEXT, TEXT, max_size=3),
    "payload": JSON,
    "result": JSON,
    "timezone": st.sampled_from(["UTC", "Europe/Berlin", "../../etc/passwd", "\x00"]) | TEXT | st.none(),
}
"""What a field is likely to be; a text, if it is not here."""


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request that is right in form, or nearly: sometimes a field has anything, is missing, or is one too many."""
    kind = draw(st.sampled_from(REQUESTS))
    said: dict[str, Any] = {field: draw(LIKELY.get(field, TEXT)) for field in kind.__struct_fields__}
    said["do"] = draw(st.sampled_from([str(kind.__struct_config__.tag)] * 9 + TAGS))
    for field in draw(st.lists(st.sampled_from(FIELDS), max_size=2)):
        if draw(st.booleans()):
            said[field] = draw(JSON)
        else:
            said.pop(field, None)
    # Not msgspec: it would refuse the numbers that are to be sent.
    return json.dumps(said).encode()


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A request with some of its bytes changed, cut or doubled."""
    line = bytearray(draw(requests()))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(line)))
        line[at : at + draw(st.integers(0, 5))] = draw(st.binary(max_size=5))
    return bytes(line)


LINES: Final = (
    requests() | broken() | st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode())
).map(lambda line: line.replace(b"\n", b" "))


def check(lines: list[bytes]) -> None:
    """Say them one after the other to a new runtime, which is there afterwards, too."""
    with tempfile.TemporaryDirectory() as folder, _errors_logged() as errors:
        db = Path(folder) / "keep.db"
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(controlled(db)):
            for line in lines:
                _say(db, line)
            [hello] = _answers(db, b'{"v":1,"do":"hello"}')
            assert hello["answer"]["pid"] == os.getpid()
        assert errors == []


def _say(db: Path, line: bytes) -> None:
    request = _request_in(line)
    if isinstance(request, Follow):
        _answers(db, line, waits=False)
        return
    [said] = _answers(db, line)
    assert ("answer" in said) != ("error" in said)
    assert said.get("error", {}).get("kind") != "internal", said
    assert request is not None or "error" in said


def _request_in(line: bytes) -> Command[Any] | None:
    """Decode it as the runtime does. A request that was understood can be sent again, and is the same."""
    try:
        request = bounds.decode(line)
    except protocol.RequestRefused:
        return None
    assert bounds.decode(msgspec.json.encode(request)) == request
    return request


def _answers(db: Path, line: bytes, waits: bool = True) -> list[dict[str, Any]]:
    """All that comes back for a line, or nothing if nobody waits for it: who follows would wait for ever."""
    with connect(place_of(db), os.getuid(), timeout_s=30) as connection, connection.makefile("rb") as lines:
        connection.sendall(line + b"\n")
        return [json.loads(each) for each in lines] if waits else []


@contextmanager
def _errors_logged() -> Iterator[list[str]]:
    """Everything that is logged as an error meanwhile."""
    errors = list[str]()

    class Errors(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            errors.append(record.getMessage())

    handler = Errors(logging.ERROR)
    logging.getLogger().addHandler(handler)
    try:
        yield errors
    finally:
        logging.getLogger().removeHandler(handler)


TARGET = Target(
    "control",
    "what is said to the control socket of a runtime",
    st.lists(LINES, min_size=1, max_size=12),
    check,
    read=lambda data: data.removesuffix(b"\n").split(b"\n"),
    write=lambda lines: b"".join(line + b"\n" for line in lines),
    suffix=".txt",
    examples=15,
)
