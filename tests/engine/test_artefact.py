"""The engine in the wheel: the one of the lock, closed to its host, and the same when its sources are built again."""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from engine import build
from keep_sandbox.engine import ENGINE_VERSION
from tests.engine import compilers

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def module() -> wasmtime.Module:
    return wasmtime.Module(wasmtime.Engine(), build.ENGINE.read_bytes())


def test_the_engine_is_the_one_of_the_lock() -> None:
    engine = build.ENGINE.read_bytes()
    assert build.sha256(engine) == build.lock()["hashes"]["engine.wasm"], "run `python sandbox/engine/build.py`"
    assert len(engine) == build.lock()["engine"]["bytes"]
    assert build.lock()["source"]["version"] == ENGINE_VERSION


@pytest.mark.parametrize("name", build.OURS)
def test_the_engine_was_built_from_the_sources_that_are_here(name: str) -> None:
    """Without compilers nothing else would notice a source that was changed and not built."""
    locked = build.lock()["hashes"][name]
    assert build.sha256((build.HERE / name).read_bytes()) == locked, "run `python sandbox/engine/build.py --lock`"


def test_the_engine_can_ask_nothing_of_its_host(module: wasmtime.Module) -> None:
    assert [each.name for each in module.imports] == []


def test_the_engine_offers_its_host_what_is_listed_and_nothing_else(module: wasmtime.Module) -> None:
    assert sorted(each.name for each in module.exports) == sorted(build.lock()["engine"]["exports"])


def test_the_memory_of_the_engine_cannot_grow(module: wasmtime.Module) -> None:
    [memory] = [each.type for each in module.exports if isinstance(each.type, wasmtime.MemoryType)]
    pages = build.lock()["engine"]["memory_bytes"] // build.PAGE_BYTES
    assert (memory.limits.min, memory.limits.max) == (pages, pages)


def test_the_same_bytes_come_out_again(tmp_path: Path) -> None:
    compilers.skip_for(compilers.others())
    again = tmp_path / "again.wasm"
    command = [sys.executable, str(build.HERE / "build.py"), "--output", str(again)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert again.read_bytes() == build.ENGINE.read_bytes()


def test_other_sources_than_those_of_the_lock_are_refused(tmp_path: Path) -> None:
    (tmp_path / build.lock()["source"]["file"]).write_bytes(b"not what was asked for")
    with pytest.raises(build.BuildError, match=r"SHA-256 .* as in the lock; delete it"):
        build.archive(tmp_path)


MODULE = """(module {imported} (memory (export "memory") {pages}) {functions}
  (global (export "__stack_pointer") (mut i32) (i32.const 0)))"""
FUNCTIONS = ["_initialize", "begin", "declare", "init", "input", "load", "prelude", "settle", "where"]


def compiled(imported: str = "", pages: str = "1280 1280", functions: list[str] = FUNCTIONS) -> bytes:
    named = " ".join(f'(func (export "{name}"))' for name in functions)
    return bytes(wasmtime.wat2wasm(MODULE.format(imported=imported, pages=pages, functions=named)))


def test_a_module_with_the_right_surface_is_accepted() -> None:
    build.check(compiled())


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (lambda: compiled(imported='(import "env" "clock" (func))'), "the module imports 1 of its host"),
        (lambda: compiled(functions=[*FUNCTIONS, "eval"]), "not those of the lock: eval"),
        (lambda: compiled(functions=FUNCTIONS[1:]), "not those of the lock: _initialize"),
        (lambda: compiled(pages="1280"), r"\[\(1280, None\)\]"),
        (lambda: compiled(pages="1280 2000"), r"\[\(1280, 2000\)\]"),
        (lambda: compiled()[:-3], "ends in the middle"),
        (lambda: b"MZ", "not a WebAssembly module"),
    ],
    ids=[
        "an import",
        "one more export",
        "one export less",
        "memory without end",
        "memory that grows",
        "cut",
        "no wasm",
    ],
)
def test_a_module_with_another_surface_is_refused(module: Callable[[], bytes], reason: str) -> None:
    with pytest.raises(build.BuildError, match=reason):
        build.check(module())


def test_the_wheel_has_the_engine_and_the_licences_of_all_that_is_in_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("keep_sandbox/engine.wasm") == build.ENGINE.read_bytes()
        names = archive.namelist()
        [metadata] = [each for each in names if each.endswith(".dist-info/METADATA")]
        described = archive.read(metadata).decode()
    for text in [build.HERE / "NOTICE.md", *(build.HERE / "LICENSES").iterdir()]:
        within = text.relative_to(ROOT).as_posix()
        assert f"License-File: {within}\n" in described
        assert any(each.endswith(f".dist-info/licenses/{within}") for each in names)
    assert not any(each.endswith((".c", ".h")) for each in names)


def test_the_notice_names_the_versions_of_the_lock() -> None:
    notice = (build.HERE / "NOTICE.md").read_text("utf-8")
    locked: dict[str, Any] = build.lock()
    inside = [
        locked["source"]["engine"],
        *(locked["compilers"][name] for name in ("wasi-libc", "libclang-rt-14-dev-wasm32")),
    ]
    assert [version for version in inside if f"| {version} |" not in notice] == []
