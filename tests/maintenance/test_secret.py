"""A secret is used and never shown."""

import copy
import json
import logging
import pickle
import pprint
import traceback
from dataclasses import asdict, dataclass

import msgspec
import pytest

from keep_actors.secret import Secret

VALUE = "sk-hush-0123456789abcdef"


class Settings(msgspec.Struct, frozen=True):
    key: Secret


@dataclass
class Connection:
    key: Secret


def test_it_is_given_to_who_asks_for_it() -> None:
    assert Secret(VALUE).reveal() == VALUE


def test_no_text_of_it_shows_it() -> None:
    key = Secret(VALUE)
    texts = [
        str(key),
        repr(key),
        f"{key}",
        f"{key!r:>40}",
        f"{key:>40}",
        f"{key:.3}",
        "%s %r" % (key, key),  # noqa: UP031  # a way to leak like the others
        repr([key]),
        pprint.pformat({"key": key}),
        repr(Settings(key)),
        repr(Connection(key)),
        str(asdict(Connection(key))),
        str(msgspec.structs.asdict(Settings(key))),
        str(ValueError(key)),
    ]
    assert [text for text in texts if VALUE in text or "hush" in text] == []
    assert f"{key:>10}" == "  [secret]"


@pytest.mark.parametrize("encode", [msgspec.json.encode, msgspec.msgpack.encode, msgspec.to_builtins, json.dumps])
@pytest.mark.parametrize("wrapped", [Secret(VALUE), Settings(Secret(VALUE)), {"key": [Secret(VALUE)]}])
def test_no_encoding_takes_it_and_the_refusal_does_not_show_it(encode: object, wrapped: object) -> None:
    assert callable(encode)
    with pytest.raises(TypeError) as raised:
        encode(wrapped)
    assert VALUE not in "".join(traceback.format_exception(raised.value))


def test_an_encoder_that_is_told_how_shows_a_word() -> None:
    assert msgspec.json.encode(Settings(Secret(VALUE)), enc_hook=str) == b'{"key":"[secret]"}'
    assert json.dumps([Secret(VALUE)], default=str) == '["[secret]"]'


def test_it_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Secret(VALUE))


def test_a_copy_is_the_secret_itself() -> None:
    key = Secret(VALUE)
    assert copy.copy(key) is key
    assert copy.deepcopy([key]) == [key]


def test_it_has_no_dictionary_to_look_into() -> None:
    with pytest.raises(TypeError):
        vars(Secret(VALUE))


def test_a_log_line_does_not_show_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("keep_actors.test").info("key %s %r", Secret(VALUE), {"key": Secret(VALUE)})
    assert caplog.messages == ["key [secret] {'key': [secret]}"]


def test_only_a_text_is_a_secret_and_what_is_not_is_not_shown() -> None:
    with pytest.raises(TypeError, match="a secret is a text, not a bytes") as raised:
        Secret(VALUE.encode())  # type: ignore[arg-type]
    assert VALUE not in str(raised.value)
