"""A target of fuzzing: what is made up, and what must hold whatever it is.

To add one: a module beside this one with a `TARGET`, its name in `tests/fuzz/targets.py`, and a folder of examples in
`tests/fuzz/corpus`. An input that once did harm becomes a file there.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.strategies import SearchStrategy

CORPUS: Final = Path(__file__).parent / "corpus"
FOUND: Final = Path(".hypothesis") / "fuzz"
_BATCH: Final = 2_000


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
    examples: int = 200
    """How many are tried with every run of the tests: some seconds, not a minute."""

    def __repr__(self) -> str:
        return self.name

    @property
    def corpus(self) -> list[Path]:
        """The files with its examples."""
        return sorted((CORPUS / self.name).iterdir())

    def try_briefly(self) -> None:
        """As in the tests."""
        self._property(settings(max_examples=self.examples, deadline=None, suppress_health_check=list(HealthCheck)))()

    def try_for(self, seconds: float) -> int:
        """Try for so long, in batches, each from other numbers. Returns how many inputs there were."""
        tried, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            chosen = settings(
                max_examples=_BATCH,
                deadline=None,
                database=DirectoryBasedExampleDatabase(FOUND / self.name),
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            )
            tried += self._property(chosen, until=end)()
        return tried

    def _property(self, chosen: settings, until: float | None = None) -> Callable[[], int]:
        tried = 0

        @chosen
        @given(self.inputs)
        def holds(given_input: Any) -> None:
            nonlocal tried
            if until is not None and time.monotonic() > until:
                return
            tried += 1
            self.check(given_input)

        def run() -> int:
            holds()
            return tried

        return run
