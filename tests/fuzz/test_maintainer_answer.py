"""The maintainer's answer, fuzzed: an untrusted text becomes a bounded, legible proposal, or a failure in words."""

import re
import time
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_actors.maintenance import Proposal, RepairFailed
from keep_actors.maintenance.answer import proposal_of
from keep_sandbox.limits import DEFAULT_LIMITS
from tests.maintenance.world import an_answer

LINE: Final = st.sampled_from(
    [
        "```js",
        "```",
        "````js",
        "````",
        "```JavaScript ",
        "``` python",
        "~~~js",
        " ```js",
        "```js```",
        "impact: safe",
        "IMPACT:safe",
        "impact: potentially_impactful",
        " impact : safe ",
        "impact: safe\r",
        "impact: safe\x0bimpact: safe",
        "export default Keep.workflow({});",
        "",
        "\r",
        "\u2028```",
    ]
) | st.text(st.characters(), max_size=30)
ANSWERS: Final = (
    st.lists(LINE, max_size=12).map("\n".join)
    | st.text(st.characters(), max_size=300)
    | st.builds(an_answer, st.text(st.characters(), max_size=100).map(lambda text: f"{text}\n"))
)


def read(answer: str) -> Proposal | RepairFailed:
    try:
        return proposal_of(answer)
    except RepairFailed as failure:
        return failure


@given(ANSWERS)
def test_any_answer_is_a_bounded_proposal_or_a_failure_in_words(answer: str) -> None:
    found = read(answer)
    if isinstance(found, RepairFailed):
        assert 0 < len(str(found)) < 300
        assert all(each.isprintable() for each in str(found).splitlines())
        return
    assert found.source.strip()
    assert found.source in f"{answer}\n"
    assert len(found.source.encode("utf-8", "surrogatepass")) <= DEFAULT_LIMITS.script_bytes
    assert len(found.note) <= 2_000
    assert all(each.isprintable() or each in "\n\t" for each in found.note)


@given(ANSWERS)
def test_an_answer_is_safe_only_if_one_line_outside_of_the_script_says_so_in_exactly_these_words(answer: str) -> None:
    found = read(answer)
    if isinstance(found, Proposal) and found.impact == "safe":
        prose = answer.replace(found.source, "", 1)
        said = [line for line in prose.split("\n") if re.match(r"(?i)\s*impact\s*:", line)]
        assert [line.strip().partition(":")[2].strip() for line in said] == ["safe"]


@given(ANSWERS, st.sampled_from(["\n", "\n\n", "\nA word.\n"]))
def test_words_behind_an_answer_change_neither_the_script_nor_the_impact(answer: str, more: str) -> None:
    before, after = read(answer), read(f"{answer}{more}")
    if isinstance(before, Proposal):
        assert isinstance(after, Proposal)
        assert (after.source, after.impact) == (before.source, before.impact)


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
