"""The time that it takes to read a maintainer's answer. What comes of it is fuzzed in `maintainer_answer.py`."""

import time
from typing import Final

import pytest

from tests.fuzz.maintainer_answer import read

LARGE: Final = {
    "backticks": "`" * 1_000_000,
    "fences": "```js\n" * 200_000,
    "impacts": "impact: safe\n" * 100_000,
    "spaces": "impact:" + " " * 1_000_000 + "x",
    "spaces in a fence": "```" + " " * 1_000_000 + "`",
    "spaces behind a fence": "```js\nx\n```" + " " * 1_000_000 + "x",
    "ends of lines": "\n" * 1_000_000,
    "one line": "x" * 2_000_000,
    "half characters": "\ud800" * 500_000,
}


@pytest.mark.parametrize("what", LARGE)
def test_no_answer_takes_long_to_read(what: str) -> None:
    before = time.thread_time()
    read(LARGE[what])
    assert time.thread_time() - before < 2
