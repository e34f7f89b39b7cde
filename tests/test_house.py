"""The rules of the house: format, lint, types, imports, the chart in the documentation, the README's commands."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from keep_sandbox.declaration import Code
from keep_storage import ExecutionModelManager, transitions
from keep_storage.manager import OPERATIONS

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent

CHECKS: dict[str, list[str | Path]] = {
    "format": [BIN / "ruff", "format", "--check", "."],
    "lint": [BIN / "ruff", "check", "."],
    "types": [BIN / "mypy"],
    "imports": [BIN / "lint-imports"],
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_tree_passes(check: str) -> None:
    done = subprocess.run(CHECKS[check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("table", ["PHASE_NEXT", "STATUS_NEXT", "MUTATION_NEXT", "EVENT_NEXT", "WORKFLOW_NEXT"])
def test_the_chart_shows_exactly_what_the_table_allows(table: str) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    found = re.search(rf"%% {table}\n(.*?)```", text, re.DOTALL)
    assert found, f"docs/architecture.md has no chart of {table}"
    drawn = set(re.findall(r"(\w+) --> (\w+)", found.group(1)))
    allowed: Mapping[StrEnum, frozenset[StrEnum]] = getattr(transitions, table)
    listed = {(_drawn(before), _drawn(after)) for before, row in allowed.items() for after in row}
    assert drawn == listed


def _drawn(state: StrEnum) -> str:
    """A chart cannot have a colon in a name."""
    return state.value.replace(":", "_")


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    reasons = (ROOT / "docs" / "architecture.md").read_text("utf-8").partition("## Dependencies")[2]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {name for each in lists for line in each for name in re.findall(r"^[a-z-]+", line)} - {project["name"]}
    assert len(names) > 8
    assert {name for name in names if name not in reasons} == set()


@pytest.mark.parametrize("heading", ["## Try it", "## Test it"])
def test_the_readme_has_its_commands(heading: str) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    block = readme.partition(f"{heading}\n")[2].split("```")[1].strip()
    assert len(block.splitlines()) == 1
    assert block.startswith("python3 -m venv")


def test_the_example_tells_the_story_that_the_readme_tells() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "kill_between.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    readme = (ROOT / "README.md").read_text("utf-8")
    told = readme.partition("\nProcess 1 was")[2].partition("```")[0]
    assert f"Process 1 was{told}" == done.stdout


def test_every_operation_is_documented() -> None:
    text = (ROOT / "docs" / "storage.md").read_text("utf-8")
    missing = {operation.__name__ for operation in OPERATIONS if f"`{operation.__name__}`" not in text}
    assert missing == set()


def test_every_operation_is_a_method_of_the_manager_of_the_same_name() -> None:
    for operation, function in OPERATIONS.items():
        words = re.sub(r"(?<!^)([A-Z])", r"_\1", operation.__name__).lower()
        assert function.__name__ == words
        assert hasattr(ExecutionModelManager, words)
        assert getattr(ExecutionModelManager, words).__doc__ == operation.__doc__


def test_every_problem_that_a_script_can_have_is_documented() -> None:
    text = (ROOT / "docs" / "sandbox.md").read_text("utf-8").partition("## Inspection")[2]
    assert {code for code in Code if f"`{code}`" not in text} == set()


# Words and names.

PACKAGES = ("keep_actors", "storage/keep_storage", "sandbox/keep_sandbox")
FRAGMENT = re.compile(
    r"(What|Who|Whose|Whom|Whether|Which|Nobody|Nothing|Somebody|Something|Everybody|Everyone|Everything|Anybody)\b"
)

SAME_NAME: dict[str, str] = {}
"""Public names that two modules define, with the reason. Keep it short."""


def sources(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield file.relative_to(ROOT), ast.parse(file.read_text("utf-8"))


def test_no_docstring_opens_with_a_fragment() -> None:
    """It begins with a verb or a noun. The string below an attribute is a docstring too."""
    found = [
        f"{file}:{node.lineno}: {node.value.value.splitlines()[0]}"
        for file, tree in sources(*PACKAGES, "bench", "examples")
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if FRAGMENT.match(node.value.value)
    ]
    assert found == []


def test_no_two_public_classes_share_a_name() -> None:
    """Classes and type aliases, in the three packages together."""
    homes: dict[str, list[str]] = defaultdict(list)
    for file, tree in sources(*PACKAGES):
        for node in tree.body:
            if (name := defined(node)) and not name.startswith("_"):
                homes[name].append(str(file))
    shared = {name: files for name, files in homes.items() if len(files) > 1}
    assert {name: files for name, files in shared.items() if name not in SAME_NAME} == {}
    assert set(SAME_NAME) <= set(shared), "a reason for a name that is no longer shared"


def defined(node: ast.stmt) -> str | None:
    """The name of a class, or of a type alias."""
    match node:
        case ast.ClassDef():
            return node.name
        case ast.AnnAssign(target=ast.Name(name), annotation=ast.Name("TypeAlias")):
            return name
        case ast.Assign(targets=[ast.Name(name)], value=ast.Subscript() | ast.BinOp()):
            return name if name[0].isupper() and not name.isupper() else None
    return None
