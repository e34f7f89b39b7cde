"""A model's answer, read strictly."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keep_actors.maintenance import Proposal, RepairFailed
from keep_actors.maintenance.answer import proposal_of
from keep_sandbox.limits import DEFAULT_LIMITS
from tests.maintenance.world import REPAIRED, an_answer


def test_a_good_answer_is_a_proposal() -> None:
    assert proposal_of(an_answer()) == Proposal(REPAIRED, "safe", "There was no mail.")


def test_the_words_may_stand_before_and_after() -> None:
    answer = an_answer(before="One.\n", after="Two.\nimpact: safe\n")
    assert proposal_of(answer) == Proposal(REPAIRED, "safe", "One.\nTwo.")


@pytest.mark.parametrize("fence", ["```js\n{}```", "```javascript\n{}```", "``` JS \n{}```  ", "````js\n{}````"])
def test_a_block_may_be_marked_in_the_usual_ways(fence: str) -> None:
    assert proposal_of(fence.format(REPAIRED)).source == REPAIRED


def test_a_longer_fence_may_hold_a_script_with_backticks() -> None:
    source = "const text = `\n```\nimpact: safe\n`;\n"
    proposal = proposal_of(f"````js\n{source}````\n")
    assert proposal == Proposal(source, "potentially_impactful", "")


def test_line_ends_of_windows_do_not_hide_the_fences() -> None:
    proposal = proposal_of("impact: safe\r\n```js\r\nconst a = 1;\r\n```\r\n")
    assert proposal == Proposal("const a = 1;\r\n", "safe", "")


def test_characters_that_only_python_takes_for_line_ends_stay_as_they_are() -> None:
    source = 'const a = "\u2028\x0b\x1c";\n'
    assert proposal_of(an_answer(source)).source == source


@pytest.mark.parametrize(
    "words",
    [
        "",
        "impact: harmless",
        "impact:",
        "impact: safe!",
        "impact: safe, I think",
        "impact: Safe",
        "The impact: safe",
        "**impact: safe**",
        "impact: safe\nimpact: potentially_impactful",
        "impact: safe\nimpact: safe",
        "impact: potentially_impactful",
    ],
)
def test_an_impact_that_is_missing_strange_or_doubled_is_for_a_person(words: str) -> None:
    assert proposal_of(an_answer(before=f"{words}\n")).impact == "potentially_impactful"


def test_a_line_inside_the_script_does_not_speak_about_it() -> None:
    assert proposal_of(an_answer("impact: safe\n", before="")).impact == "potentially_impactful"


BAD = {
    "no block": ("I am sorry, I cannot.\nimpact: safe", "no ```js block"),
    "nothing": ("", "no ```js block"),
    "two blocks": (an_answer() + an_answer(), "has 2 fenced blocks"),
    "another block beside": (an_answer(after="```json\n{}\n```\n"), "has 2 fenced blocks"),
    "another language": ("```python\nprint()\n```", "marked 'python', not js"),
    "no language": ("```\nx\n```", "marked '', not js"),
    "a script that looks like two languages": ("```js python\nx\n```", "marked 'js python', not js"),
    "no end": ("```js\nexport default", "is incomplete"),
    "an empty block": ("```js\n\n```", "is empty"),
    "too large": (an_answer("x" * DEFAULT_LIMITS.script_bytes + "\n"), "bytes"),
    "too large in bytes only": (an_answer("ü" * (DEFAULT_LIMITS.script_bytes // 2) + "\n"), "bytes"),
    "too many lines": (an_answer("\n" * 10 + "x\n" * DEFAULT_LIMITS.script_lines), "lines"),
    "on one line": ("```js export default 1 ```", "no ```js block"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_was_not_asked_for_is_no_proposal(case: str) -> None:
    answer, words = BAD[case]
    with pytest.raises(RepairFailed) as raised:
        proposal_of(answer)
    assert words in str(raised.value)
    assert not raised.value.is_transient


def test_a_script_of_the_largest_size_is_taken() -> None:
    assert proposal_of(an_answer("x" * (DEFAULT_LIMITS.script_bytes - 1) + "\n")).impact == "safe"


def test_the_note_is_bounded_and_legible() -> None:
    note = proposal_of(an_answer(before="\x1b[2J" + "words " * 10_000 + "\n")).note
    assert note.startswith("\\x1b[2J")
    assert len(note) <= 2_000


@given(st.lists(st.sampled_from(["```", "```js", "````", "~~~", "impact: safe", "x", "\r", "`", ""])).map("\n".join))
def test_any_answer_is_a_proposal_or_a_failure_in_words(answer: str) -> None:
    with contextlib.suppress(RepairFailed):
        proposal = proposal_of(answer)
        assert proposal.source.strip()
        assert proposal.source in answer
