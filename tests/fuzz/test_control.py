"""The control protocol, fuzzed: whatever arrives is answered, and nothing that arrives is a bug in the log.

`python -m pytest tests/fuzz/test_control.py --hypothesis-profile=...` runs it for longer.
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keep_actors.control import bounds, protocol
from keep_actors.control.place import connect, place_of
from keep_actors.control.protocol import AnyRequest, Follow
from tests.control.test_control import controlled

REQUESTS: Final = get_args(AnyRequest)

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


@given(LINES)
def test_a_line_is_a_request_that_can_be_sent_again_or_is_refused(line: bytes) -> None:
    with suppress(protocol.RequestRefused):
        request = bounds.decode(line)
        assert bounds.decode(msgspec.json.encode(request)) == request


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A database whose runtime listens, in a loop of its own."""
    path = tmp_path_factory.mktemp("fuzz") / "keep.db"
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(controlled(path)):
        yield path


def answered(db: Path, line: bytes) -> list[dict[str, Any]]:
    """All that comes back for a line. Who follows hears nothing more once they have hung up."""
    with connect(place_of(db), os.getuid(), timeout_s=30) as connection, connection.makefile("rb") as lines:
        connection.sendall(line + b"\n")
        try:
            follows = isinstance(bounds.decode(line), Follow)
        except protocol.RequestRefused:
            follows = False
        return [] if follows else [json.loads(each) for each in lines]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=LINES)
def test_a_runtime_answers_every_line_and_none_of_them_is_a_bug(
    db: Path, caplog: pytest.LogCaptureFixture, line: bytes
) -> None:
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        for said in answered(db, line):
            assert ("answer" in said) != ("error" in said)
            assert said.get("error", {}).get("kind") != "internal", said
    assert [record.getMessage() for record in caplog.records] == []
    [hello] = answered(db, b'{"v":1,"do":"hello"}')
    assert hello["answer"]["pid"] == os.getpid()
