"""Secrets are taken out of texts, however a protocol spells them, and out of what client packages log."""

import gc
import html
import json
import logging
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest

from keep_actors.connectors import Connector, read
from keep_actors.outbound.redaction import redacted, redacted_json, redacted_words
from keep_actors.outbound.secret import Secret

PLAIN = "kx93-Trmu/8Q"
UGLY = "p+a/s=s\"w\\ö <r'%d>&\t7"


class Lamp(Connector):
    name = "lamp"

    @read
    async def look(self) -> str:
        return "on"


def ways(value: str) -> dict[str, str]:
    content = value.encode()
    return {
        "itself": value,
        "JSON": json.dumps(value),
        "JSON in UTF-8": json.dumps(value, ensure_ascii=False),
        "JSON in capitals": json.dumps(value).replace("\\u00f6", "\\u00F6"),
        "JSON with slashes escaped": json.dumps(value).replace("/", "\\/"),
        "JSON for HTML": "".join(f"\\u{ord(each):04x}" if each in "&<>'+" else each for each in json.dumps(value)),
        "JSON in JSON": json.dumps(json.dumps({"heard": value})),
        "JSON in an error": repr({"said": json.dumps({"heard": value})}),
        "bytes in an error": repr({"said": b'LOGIN "' + content + b'"'}),
        "HTML": html.escape(value),
        "URL": quote(value),
        "URL with slashes escaped": quote(value, safe=""),
        "form": quote_plus(value),
        "base64": b64encode(content).decode(),
        **{
            f"base64 of a pair with {user!r}": b64encode(f"{user}:{value}".encode()).decode()
            for user in ("a", "an", "ann")
        },
        "base64 for URLs": urlsafe_b64encode(b"ann:" + content).decode(),
        "AUTH PLAIN": b64encode(b"\0ann\0" + content).decode(),
    }


@pytest.mark.parametrize("value", [PLAIN, UGLY], ids=["plain", "ugly"])
@pytest.mark.parametrize("way", ways(PLAIN))
def test_a_secret_is_found_in_every_spelling(way: str, value: str) -> None:
    spelled = ways(value)[way]
    safe = redacted(f"it said {spelled} and more", [Secret(value)])
    assert "[secret]" in safe
    assert not [piece for piece in pieces(spelled.strip('"')) if "64" in way and piece in safe]
    assert value[:5] not in safe
    assert value[-5:] not in safe


def pieces(text: str) -> list[str]:
    """Pieces of seven characters, which is more than a cut between two bytes leaves of base64, without the edges."""
    return [text[i : i + 7] for i in range(8, len(text) - 10)]


@pytest.mark.parametrize(
    ("words", "safe"),
    [
        ('it said "' + "x" * 20 + PLAIN[:7] + '"', 'it said "' + "x" * 20 + '[secret]"'),
        (
            f'it said "{PLAIN[:5]}"; it wrote "{PLAIN[-5:]} and went"',
            'it said "[secret]"; it wrote "[secret] and went"',
        ),
        (f"at the end {PLAIN[:4]}", "at the end [secret]"),
        (f"{PLAIN[3:]} at the start", "[secret] at the start"),
        (f"{PLAIN[:6]}… 7 characters left out", "[secret]… 7 characters left out"),
        (f"{PLAIN[:6]} in the middle, and {PLAIN[:3]}", f"{PLAIN[:6]} in the middle, and {PLAIN[:3]}"),
    ],
)
def test_the_piece_of_a_secret_that_a_cut_has_left_is_taken_out(words: str, safe: str) -> None:
    assert redacted_words(words, [Secret(PLAIN)]) == safe


def test_results_are_whole_texts_in_which_a_piece_proves_nothing() -> None:
    assert redacted_json(f'["{PLAIN[:6]}"]', [Secret(PLAIN)]) == f'["{PLAIN[:6]}"]'


def test_a_secret_of_digits_is_also_taken_out_as_a_number() -> None:
    assert redacted_json('{"pin":40712,"id":4071233}', [Secret("40712")]) == '{"pin":"[secret]","id":4071233}'


def test_a_secret_that_is_too_short_to_be_found_changes_no_text() -> None:
    assert redacted("abc in abcd", [Secret("abc")]) == "abc in abcd"


def test_what_client_packages_log_has_no_secret_of_a_connector(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    lamp = Lamp()
    lamp.hide(Secret(PLAIN))
    for name in ("httpcore2.http11", "imapclient.imaplib", "psycopg", "mcp.client.stdio", "asyncio", "keep_actors.x"):
        caplog.set_level(logging.DEBUG, logger=name)  # psycopg sets its own level when it is imported
        logging.getLogger(name).debug("heard %r of %s", {"key": PLAIN}, name)
        try:
            raise ValueError(f"no {PLAIN}")
        except ValueError:
            logging.getLogger(name).exception("it failed")
    assert caplog.text.count("[secret]") == 12
    assert PLAIN not in caplog.text
    assert not [record for record in caplog.records if PLAIN in str(vars(record))]


def test_the_logs_of_others_and_of_a_connector_that_is_gone_are_left_as_they_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    lamp = Lamp()
    lamp.hide(Secret(PLAIN))
    logging.getLogger("shop").info("%s", PLAIN)
    del lamp
    gc.collect()
    logging.getLogger("imapclient").info("%s", PLAIN)
    assert [record.getMessage() for record in caplog.records] == [PLAIN, PLAIN]


def test_a_record_that_cannot_be_written_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    lamp = Lamp()
    lamp.hide(Secret(PLAIN))
    logging.getLogger("imapclient").warning("%d", PLAIN)
    assert caplog.messages == ["a record of imapclient that cannot be written"]
    assert lamp.__hidden__, "it is still there"
