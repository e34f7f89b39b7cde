"""A thousand seeds at every check: anything may go wrong, and no promise is broken."""

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from keep_actors.connectors import Catalog
from keep_sandbox.inspect import inspect
from tests.simulation import scripts, weather
from tests.simulation.many import some
from tests.simulation.report import figures
from tests.simulation.report import story as shown
from tests.simulation.shop import Shop
from tests.simulation.story import tell
from tests.simulation.trace import EDGES, Figures

ROOT = Path(__file__).parents[2]
CHUNK = 125


@pytest.mark.parametrize("first", range(0, 1_000, CHUNK))
def test_whatever_goes_wrong_no_promise_is_broken(first: int) -> None:
    batch = some(list(range(first, first + CHUNK)))
    assert not batch.failed, shown(batch.failed[0])
    assert batch.figures.seeds == CHUNK
    assert batch.figures.uncertain > 0
    assert batch.figures.process_crashes > 0


def test_every_edge_of_every_table_is_taken() -> None:
    """In worlds where everything may happen; as many as it takes, and not too many."""
    total = Figures(settled_by={}, edges=set())
    for seed in range(250):
        usual = weather.climate(seed)
        rich = msgspec.structs.replace(usual, workflows=2, minutes=12, archives=True, asks=True, bad_calls=0.5)
        told = tell(seed, rich)
        assert not told.violation, shown(told)
        total.add(told.figures)
        if not total.missing_edges:
            break
    assert total.missing_edges == [], figures(total, 0, 0)


def test_what_no_table_allows_is_seen() -> None:
    told = tell(1)
    assert told.figures.edges - EDGES <= {("phase", "pending", "committed")}


@pytest.mark.parametrize("seed", [3, 8, 11])
def test_a_seed_tells_the_same_story_in_every_process(seed: int) -> None:
    program = (
        "import hashlib, logging; logging.disable(logging.CRITICAL)\n"
        "from tests.simulation.story import tell\n"
        f"print(hashlib.sha256('\\n'.join(tell({seed}).trace).encode()).hexdigest())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "77")
    }
    assert said == {hashlib.sha256("\n".join(tell(seed).trace).encode()).hexdigest()}


@pytest.mark.parametrize("seed", range(20))
def test_made_scripts_have_no_problems(seed: int) -> None:
    rng = random.Random(seed)
    spec = scripts.make(rng, f"flow {seed}")
    source = scripts.source(scripts.changed(rng, spec, mended=False))
    assert inspect(source, Catalog([Shop()]).kinds()).problems == []


def test_the_command_prints_a_story_in_fixed_columns() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--show", "1"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines == list(tell(1).trace)
    assert {line[18:20] for line in lines} <= {" p"}


def test_the_command_counts_what_it_did() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", "4", "--jobs", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "violations                           0" in done.stdout
    assert "edges of the tables never taken" in done.stdout
    assert "4 of 4 seeds" in done.stderr
