"""Build `engine.wasm`, the JavaScript engine of the sandbox: `python sandbox/engine/build.py`.

Everything that decides the bytes is in `engine.lock.toml`: the source distribution by its hash, the versions of the
compilers (Debian's packages), the flags. The same bytes come out in any folder. What is built is refused unless it
imports nothing, exports the names of the lock and no others, and has a memory that cannot grow.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
LOCK: Final = HERE / "engine.lock.toml"
ENGINE: Final = HERE.parent / "keep_sandbox" / "engine.wasm"
DOWNLOADS: Final = HERE.parents[1] / ".ci" / "tools" / "engine"
OURS: Final = ("shim.c", "plain.c", "plain.h")
THEIRS: Final = ("quickjs/quickjs.c", "quickjs/libregexp.c", "quickjs/libunicode.c", "quickjs/dtoa.c")
PAGE_BYTES: Final = 65_536


class BuildError(Exception):
    """The engine cannot be built, or must not be used as it was built."""


def lock() -> dict[str, Any]:
    """The lock file."""
    return tomllib.loads(LOCK.read_text("utf-8"))


# --- the sources -----------------------------------------------------------------------------------------------------


def archive(folder: Path = DOWNLOADS) -> Path:
    """The source distribution, from this folder or downloaded into it. Its hash is checked either way."""
    source = lock()["source"]
    file = folder / str(source["file"])
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary:
            wanted = Path(temporary) / "wanted.txt"
            wanted.write_text(f"{source['name']}=={source['version']} --hash=sha256:{source['sha256']}\n", "utf-8")
            pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
            run([*pip, "--no-binary", source["name"], "-r", str(wanted), "-d", temporary], folder)
            (Path(temporary) / source["file"]).replace(file)
    found = sha256(file.read_bytes())
    if found != source["sha256"]:
        raise BuildError(f"{file} has the SHA-256 {found}, not {source['sha256']} as in the lock; delete it")
    return file


def unpack(file: Path, folder: Path) -> None:
    """Put the engine's C sources, and ours, into a folder."""
    with tarfile.open(file) as packed:
        for member in packed.getmembers():
            path = Path(member.name)
            if member.isfile() and path.parent.name == "upstream-quickjs" and len(path.parts) == 3:
                content = packed.extractfile(member)
                assert content is not None, "it is a file"
                (folder / "quickjs").mkdir(exist_ok=True)
                (folder / "quickjs" / path.name).write_bytes(content.read())
    for name in OURS:
        (folder / name).write_bytes((HERE / name).read_bytes())


# --- the compilers ---------------------------------------------------------------------------------------------------


def other_compilers() -> dict[str, str]:
    """Packages that are not installed at the version of the lock, with the one that is there ('' for none)."""
    locked: dict[str, str] = lock()["compilers"]
    found = {name: _installed(name) for name in locked}
    return {name: version for name, version in found.items() if version != locked[name]}


def _installed(package: str) -> str:
    try:
        said = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return said.stdout if said.returncode == 0 else ""


def run(command: list[str], folder: Path) -> None:
    """Run a command in a folder; what it says is shown only if it fails."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is not installed; sandbox/engine/README.md lists the packages") from error
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def build(sources: Path) -> bytes:
    """Compile and link. Only relative paths are used, so that no folder's name gets into the bytes."""
    flags = lock()["flags"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        unpack(sources, folder)
        objects = []
        prefix = f"-ffile-prefix-map={folder}=."
        for name in [*THEIRS, *(each for each in OURS if each.endswith(".c"))]:
            warnings = flags["warnings"] if name in OURS else ["-w"]
            objects.append(f"{Path(name).stem}.o")
            run(["clang-14", *flags["compile"], *warnings, prefix, "-c", name, "-o", objects[-1]], folder)
        run(["clang-14", *flags["compile"], *objects, "-o", "engine.wasm", *flags["link"]], folder)
        return (folder / "engine.wasm").read_bytes()


def build_natively(sources: Path, program: Path, plain: str | None = None) -> None:
    """Build `fuzz_plain` and the engine with AddressSanitizer and UBSan.

    `plain` is a text to compile in place of plain.c. The engine's objects are kept beside the source distribution.
    """
    flags = lock()["flags"]
    key = sha256(repr((sources.name, sha256(sources.read_bytes()), flags["native"])).encode())[:16]
    theirs = DOWNLOADS / f"native-{key}"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        unpack(sources, folder)
        (folder / "fuzz_plain.c").write_bytes((HERE / "fuzz_plain.c").read_bytes())
        if plain is not None:
            (folder / "plain.c").write_text(plain, "utf-8")
        objects = [theirs / f"{Path(name).stem}.o" for name in THEIRS]
        for name, file in zip(THEIRS, objects, strict=True):
            if not file.exists():
                run(["clang-14", *flags["native"], "-w", "-c", name], folder)
                _put(folder / file.name, file)
        for name in ("plain", "fuzz_plain"):
            run(["clang-14", *flags["native"], *flags["warnings"], "-Wconversion", "-c", f"{name}.c"], folder)
            objects.append(Path(f"{name}.o"))
        run(["clang-14", *flags["native"], *map(str, objects), "-lm", "-o", "fuzz_plain"], folder)
        _put(folder / "fuzz_plain", program)


def _put(made: Path, wanted: Path) -> None:
    """Copy a file to its place, whole or not at all."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    beside = wanted.with_name(f".{wanted.name}.{os.getpid()}")
    shutil.copy(made, beside)
    beside.replace(wanted)


# --- what was built --------------------------------------------------------------------------------------------------


def check(module: bytes) -> None:
    """Refuse a module with an import, with other exports than those of the lock, or with a memory that can grow."""
    locked = lock()["engine"]
    imports, exports, memories = surface(module)
    if imports:
        raise BuildError(f"the module imports {imports} of its host; it must do without")
    if sorted(exports) != sorted(locked["exports"]):
        differing = sorted(set(exports) ^ set(locked["exports"]))
        raise BuildError(f"the module's exports are not those of the lock: {', '.join(differing)}")
    pages = locked["memory_bytes"] // PAGE_BYTES
    if memories != [(pages, pages)]:
        raise BuildError(f"the module's memory has (minimum, maximum) pages {memories}; it must be {pages}, both")


def surface(module: bytes) -> tuple[int, list[str], list[tuple[int, int | None]]]:
    """The number of imports, the names of the exports, and each memory's minimum and maximum of pages."""
    if module[:8] != b"\0asm\1\0\0\0":
        raise BuildError("not a WebAssembly module of version 1")
    imports, exports, memories = 0, list[str](), list[tuple[int, int | None]]()
    for kind, content in _sections(module):
        reader = _Reader(content)
        if kind == 2:
            imports = reader.number()
        elif kind == 5:
            for _ in range(reader.number()):
                has_maximum, minimum = reader.byte() & 1, reader.number()
                memories.append((minimum, reader.number() if has_maximum else None))
        elif kind == 7:
            for _ in range(reader.number()):
                exports.append(reader.take(reader.number()).decode())
                reader.byte()
                reader.number()
    return imports, exports, memories


def _sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Reader(module[8:])
    while reader.rest:
        yield reader.byte(), reader.take(reader.number())


class _Reader:
    """Bytes and numbers (LEB128), one after another."""

    def __init__(self, data: bytes) -> None:
        self.rest = memoryview(data)

    def take(self, length: int) -> bytes:
        taken, self.rest = bytes(self.rest[:length]), self.rest[length:]
        if len(taken) != length:
            raise BuildError("the module ends in the middle of a section")
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value


def sha256(data: bytes) -> str:
    """The SHA-256, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def locked_again(module: bytes) -> str:
    """The lock file with the hashes of this module and of our sources as they are now."""
    text = LOCK.read_text("utf-8")
    now = {"engine.wasm": module} | {name: (HERE / name).read_bytes() for name in OURS}
    for name, data in now.items():
        text, count = re.subn(rf'^"{re.escape(name)}" = .*$', f'"{name}" = "{sha256(data)}"', text, flags=re.MULTILINE)
        assert count == 1, f"the lock has one line for {name}"
    text, count = re.subn(r"^bytes = .*$", f"bytes = {len(module)}", text, flags=re.MULTILINE)
    assert count == 1, "the lock has one line for the size"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(prog="build.py", description=__doc__)
    parser.add_argument("--output", type=Path, default=ENGINE, help="the file to write (keep_sandbox/engine.wasm)")
    parser.add_argument(
        "--sources", type=Path, default=DOWNLOADS, help="a folder with the source distribution, if at hand"
    )
    parser.add_argument("--lock", action="store_true", help="write the new hashes into the lock: this engine is wanted")
    parser.add_argument("--native", type=Path, help="build the fuzzing program into this file instead")
    asked = parser.parse_args()
    try:
        sources = archive(asked.sources)
        if asked.native:
            build_natively(sources, asked.native)
            return 0
        module = build(sources)
        check(module)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    asked.output.write_bytes(module)
    sys.stdout.write(f"{sha256(module)}  {asked.output}  {len(module):,} bytes\n")
    if asked.lock:
        LOCK.write_text(locked_again(module), "utf-8")
        return 0
    expected = lock()["hashes"]["engine.wasm"]
    if sha256(module) == expected:
        return 0
    others = [f"{name} {version or 'missing'}" for name, version in other_compilers().items()]
    reason = (
        f"other compilers: {', '.join(others)}" if others else "other sources or flags; `--lock` if they are wanted"
    )
    sys.stderr.write(f"not the engine of the lock ({expected}): {reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
