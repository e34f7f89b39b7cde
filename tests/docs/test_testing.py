"""Every example of docs/testing.md runs as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import keep_actors.testing as kit
from keep_actors.testing import Box

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "testing.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_runs(number: int, tmp_path: Path) -> None:
    (tmp_path / "docs_testing.py").write_text(EXAMPLES[0].replace("\nanyio.run(main)\n", ""), "utf-8")
    (tmp_path / "example.py").write_text(EXAMPLES[number], "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "example.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_everything_that_the_kit_offers_is_documented() -> None:
    words = set(re.findall(r"\w+", TEXT))
    assert {name for name in kit.__all__ if name not in words} - {"Asked", "Effect", "Hang", "Outside", "Step"} == set()
    methods = {name for name in vars(Box) if not name.startswith("_")}
    assert {name for name in methods if name not in words} - {"id_of", "processes"} == set()
