"""Every target, briefly, and every example of its corpus."""

from pathlib import Path

import pytest

from tests.engine.compilers import skip_for
from tests.fuzz.target import Target
from tests.fuzz.targets import targets

# The first test of a process compiles the engine with sanitizers, which takes minutes on a slow machine.
pytestmark = pytest.mark.timeout(900)

TARGETS = targets()
EXAMPLES = [(target, file) for target in TARGETS.values() for file in target.corpus]


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_nothing_that_is_made_up_does_harm(target: Target) -> None:
    skip_for(target.prepare())
    target.try_briefly()


@pytest.mark.parametrize(("target", "file"), EXAMPLES, ids=lambda each: each.name)
def test_no_example_does_harm(target: Target, file: Path) -> None:
    skip_for(target.prepare())
    example = target.read(file.read_bytes())
    target.check(example)
    assert target.read(target.write(example)) == example, "an input that is kept is the one that was found"


def test_every_target_has_a_corpus_of_its_own() -> None:
    assert all(target.corpus for target in TARGETS.values())
    assert set(TARGETS) == {each.name for each in (Path(__file__).parent / "corpus").iterdir()}
