"""The maintainer's answer: an untrusted text becomes a bounded, legible proposal, or a failure in words."""

import re
from typing import Final

from hypothesis import strategies as st

from keep_actors.maintenance import Proposal, RepairFailed
from keep_actors.maintenance.answer import proposal_of
from keep_sandbox.limits import DEFAULT_LIMITS
from tests.fuzz.target import Target
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


def check(answer: str) -> None:
    """Read it, and read it again with more words behind it."""
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
    if found.impact == "safe":
        _one_line_outside_of_the_script_says_safe(answer, found.source)
    for more in ("\n", "\n\n", "\nA word.\n"):
        after = read(f"{answer}{more}")
        assert isinstance(after, Proposal), "words behind an answer change nothing"
        assert (after.source, after.impact) == (found.source, found.impact)


def read(answer: str) -> Proposal | RepairFailed:
    """As `ChatMaintainer` reads it."""
    try:
        return proposal_of(answer)
    except RepairFailed as failure:
        return failure


def _one_line_outside_of_the_script_says_safe(answer: str, source: str) -> None:
    """Look at the prose around the script: the words of a short script may be found elsewhere in the answer too."""
    text = f"{answer}\n"
    places = [each for each in range(len(text)) if text.startswith(source, each) and _is_behind_a_fence(text, each)]
    assert any(_says(text[:each] + text[each + len(source) :]) == ["safe"] for each in places)


def _is_behind_a_fence(text: str, place: int) -> bool:
    *_, line, rest = ["", *text[:place].split("\n")]
    return rest == "" and line.strip().startswith(("```", "~~~"))


def _says(prose: str) -> list[str]:
    said = [line for line in prose.split("\n") if re.match(r"(?i)\s*impact\s*:", line)]
    return [line.strip().partition(":")[2].strip() for line in said]


TARGET = Target(
    "maintainer_answer",
    "what a language model says when it is asked for a repair",
    ANSWERS,
    check,
    read=lambda data: data.decode("utf-8", "surrogatepass"),
    write=lambda answer: answer.encode("utf-8", "surrogatepass"),
    suffix=".txt",
)
