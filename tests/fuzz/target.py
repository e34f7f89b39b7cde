"""A target of fuzzing: what is made up, and what must hold whatever it is.

To add one: a module beside this one with a `TARGET`, its name in `tests/fuzz/targets.py`, and a folder of examples in
`tests/fuzz/corpus`. An input that does harm becomes a file there, and is tried first from then on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

CORPUS: Final = Path(__file__).parent / "corpus"


@dataclass(frozen=True, repr=False)
class Target:
    """One reader of hostile input."""

    name: str
    about: str
    inputs: SearchStrategy[Any]
    check: Callable[[Any], object]
    """Raises, if something is wrong."""
    read: Callable[[bytes], Any]
    """An input from a file of the corpus."""
    write: Callable[[Any], bytes]
    """The file of an input."""
    suffix: str
    """How the names of such files end."""
    examples: int = 200
    """How many are tried with every run of the tests: some seconds, not a minute."""
    prepare: Callable[[], str] = str
    """Builds what it needs. The reason why it cannot be tried here; nothing, if it can."""

    def __repr__(self) -> str:
        return self.name

    @property
    def corpus(self) -> list[Path]:
        """The files with its examples."""
        return sorted((CORPUS / self.name).iterdir())

    def try_briefly(self) -> None:
        """As in the tests."""
        self.try_with(self.check, settings(max_examples=self.examples))

    def try_with(self, check: Callable[[Any], object], chosen: settings, number: int | None = None) -> None:
        """Make up inputs, from this number if there is one, until `check` raises or there were enough."""

        @settings(
            chosen,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink],
        )
        @given(self.inputs)
        def holds(made_up: Any) -> None:
            check(made_up)

        (holds if number is None else seed(number)(holds))()
