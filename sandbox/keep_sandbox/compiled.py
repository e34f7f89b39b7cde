"""The machine code of the engine: compiled once per user, and kept in a cache.

`engine.wasm` is compiled by a process of its own, because the compiler leaves threads behind. What the cache holds is
executed: it is used only if the file belongs to this user, is closed to others, and is whole. Anything else is made
again. Without a cache the engine is compiled at every start.
"""

import hashlib
import logging
import os
import platform
import stat
import subprocess
import sys
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

import platformdirs

from keep_sandbox import wasm

logger = logging.getLogger(__name__)

CACHE_VARIABLE: Final = "KEEP_ACTORS_CACHE"
"""Names another folder for the cache."""

_COMPILE_TIMEOUT_S: Final = 300
_DIGEST_BYTES: Final = hashlib.sha256().digest_size


class EngineNotCompiled(Exception):
    """The engine could not be compiled on this machine."""


@cache
def machine_code() -> bytes:
    """The engine, compiled for this machine: from the cache, or made now, which takes some seconds."""
    wasm.check_installation()
    source = engine_wasm()
    place = cache_folder() / cache_name(source)
    found = _read(place)
    if found is not None and wasm.is_loadable(found):
        return found
    logger.info("sandbox: compiling the engine for this machine, which takes some seconds")
    made = _made_elsewhere()
    _write(place, made)
    return made


def engine_wasm() -> bytes:
    """The engine as WebAssembly. `sandbox/engine/` has its sources."""
    return resources.files("keep_sandbox").joinpath("engine.wasm").read_bytes()


def cache_folder() -> Path:
    """The folder of the cache. It need not exist."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else platformdirs.user_cache_path("keep-actors", appauthor=False)


def cache_name(source: bytes) -> str:
    """The file for this engine: its hash, the compiler with its settings, and the machine."""
    made_of = (source, wasm.WASMTIME_VERSION.encode(), wasm.SETTINGS.encode(), platform.machine().encode())
    key = hashlib.sha256(b"\0".join(hashlib.sha256(each).digest() for each in made_of)).hexdigest()[:32]
    return f"engine-{key}"


def _read(place: Path) -> bytes | None:
    """The machine code in a file of the cache; None if it is missing, foreign or not whole."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(place, flags | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    if not _is_ours(os.fstat(descriptor)):
        os.close(descriptor)
        logger.warning("sandbox: %s is not a private file of this user; compiling the engine again", place)
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read()
    digest, code = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if digest != hashlib.sha256(code).digest():
        logger.warning("sandbox: %s is damaged; compiling the engine again", place)
        return None
    return code


def _is_ours(found: os.stat_result) -> bool:
    if not stat.S_ISREG(found.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True  # the folder is in the profile of the user, which the system protects
    return found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077 == 0 and found.st_nlink == 1


def _write(place: Path, code: bytes) -> None:
    """Put machine code into the cache, whole or not at all. A cache that cannot be written is no error."""
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=place.parent, prefix="engine-new-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            Path(name).replace(place)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        logger.info("sandbox: the compiled engine cannot be kept in %s (%s)", place.parent, error)


def _made_elsewhere() -> bytes:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    command = [sys.executable, "-P", "-s", "-m", "keep_sandbox.compiled"]
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=_COMPILE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineNotCompiled(f"the engine could not be compiled: {error}") from error
    if done.returncode != 0 or not done.stdout:
        said = done.stderr.decode("utf-8", "replace").strip()[-2_000:]
        raise EngineNotCompiled(f"the engine could not be compiled (exit code {done.returncode}): {said}")
    return done.stdout


def main() -> None:
    """Compile the engine and write it to the standard output."""
    sys.stdout.buffer.write(wasm.compiled(engine_wasm()))


if __name__ == "__main__":
    main()
