"""The documentation runs and has every public name; nothing here catches every exception."""

import ast
import re
import runpy
from pathlib import Path

from keep_actors import maintenance

ROOT = Path(__file__).parents[2]


def test_the_documentation_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "maintenance.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    (tmp_path / "documented.py").write_text("\n".join(blocks), "utf-8")
    runpy.run_path(str(tmp_path / "documented.py"))


def test_the_documentation_has_every_public_name() -> None:
    text = (ROOT / "docs" / "maintenance.md").read_text("utf-8")
    assert {name for name in maintenance.__all__ if name not in text} == set()


def test_no_exception_is_caught_by_all_its_names() -> None:
    broad = [
        path.name
        for path in [
            *(ROOT / "keep_actors" / "maintenance").glob("*.py"),
            ROOT / "keep_actors" / "outbound" / "secret.py",
        ]
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    ]
    assert broad == []
