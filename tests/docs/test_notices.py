"""What docs/notices.md says is so: its Python runs, its receiver receives, its tables are those of the code."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from keep_actors import notices
from keep_actors.notices import Notice, Webhook, signature
from keep_actors.notices.actor import FINISH_MS, LOOK_EVERY_MS
from keep_actors.notices.needs_attention import NOTICE_KIND
from keep_actors.notices.sink import PATIENCE
from keep_storage.model import AttentionKind, NoticeKind
from tests.docs.test_docs import ROOT, blocks, run_block, table
from tests.runtime.fakes import Fake
from tests.runtime.pager import calm
from tests.runtime.test_notices import asks
from tests.runtime.world import world

TEXT = (ROOT / "docs" / "notices.md").read_text("utf-8")
SECRET = "whsec_aHVzaC0wMTIzNDU2Nzg5YWJjZGVmMDEyMw=="


@pytest.mark.anyio
async def test_the_receiver_of_the_documentation_is_told_once_and_by_nobody_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEEP_SECRET", SECRET)
    names: dict[str, Any] = {}
    for block in blocks(TEXT, "python"):
        await run_block(block, names)
    app = names["app"]
    assert isinstance(app, Starlette)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        webhook = Webhook("https://receiver.example/keep", secret=SECRET, client=client)
        async with world(Fake(), notices=webhook) as box:
            await asks(box)
            await calm(box)
            [told] = await box.keep.notices()
            assert [str(each.status) for each in told.sent] == ["delivered"]
        await webhook.deliver(told.notice)
        forged = Webhook("https://receiver.example/keep", secret=notices.new_secret(), client=client)
        with pytest.raises(Exception, match="answered 400"):
            await forged.deliver(told.notice)
    assert capsys.readouterr().out.count("needs_person approval flow") == 1


def test_every_public_name_is_documented() -> None:
    assert {name for name in notices.__all__ if f"`{name}" not in TEXT and f"{name}(" not in TEXT} <= {"Sink", "Sinks"}


def test_every_field_of_a_notice_is_documented() -> None:
    named = [name for row in table(TEXT, "field of `Notice`") for name in row[0].replace("`", "").split(", ")]
    assert named == list(Notice.__struct_fields__)


def test_every_kind_of_attention_is_told_as_a_kind_of_notice_or_said_to_be_told_to_nobody() -> None:
    assert set(NOTICE_KIND) == set(AttentionKind)
    told_as = {str(kind): told for kind, told in NOTICE_KIND.items()}
    assert {kind: told_as[kind] for kind in NoticeKind} == {kind: kind for kind in NoticeKind}
    others = {kind: told for kind, told in told_as.items() if kind not in set(map(str, NoticeKind))}
    assert others == {"failing": "error", "proposal": None, "stale": None, "expired": None}
    words = " ".join(TEXT.split())
    assert "**Of a handler that keeps failing** people are told too" in words
    assert "after `Policy.notice_after_ms`, as an `error`" in words
    words_of_others = (
        "`proposal`, `stale` and `expired` entries of `attention()` are only listed there; no notice is sent"
    )
    assert words_of_others in words
    [row] = [row for row in table(TEXT, "field of `Notice`") if row[0] == "`kind`"]
    assert row[1] == ", ".join(f"`{each}`" for each in NoticeKind)


def test_every_header_is_documented() -> None:
    headers = [row[0].strip("`") for row in table(TEXT, "header")]
    assert set(headers) == {signature.NOTICE_ID, signature.TIMESTAMP, signature.SIGNATURE}


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"two looks ({LOOK_EVERY_MS} ms)" in TEXT
    assert f"for {FINISH_MS // 1000} s at most" in TEXT
    assert (PATIENCE.first_ms, PATIENCE.cap_ms, PATIENCE.jitter) == (5_000, 3_600_000, 0.2)
    assert f"5 s, 10 s, … an hour, longer by up to a fifth at random, {PATIENCE.attempts_max} attempts" in TEXT
    assert PATIENCE.attempts_max is not None
    waits = [min(PATIENCE.first_ms << number, PATIENCE.cap_ms) for number in range(PATIENCE.attempts_max - 1)]
    assert 24 < sum(waits) / 3_600_000 < 30, "a little more than a day"
    assert signature.TOLERANCE_MS == 5 * 60 * 1000


def test_an_optional_library_is_asked_for_by_the_name_of_its_extra() -> None:
    project = Path(ROOT / "pyproject.toml").read_text("utf-8")
    assert 'notices = ["httpx' in project
    assert "keep-actors[notices]" in TEXT
