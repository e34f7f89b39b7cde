"""An environment for each peer: packages of pip and npm in a folder of the cache, made once and found again.

A peer that cannot be installed is `Unavailable`, with a reason for people; the harness skips it.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import platformdirs

_INSTALL_S: Final = 600
_READY: Final = "ready"


class Unavailable(Exception):
    """A system cannot be had on this machine."""


class Packages(NamedTuple):
    """The packages of a peer, with their exact versions."""

    pip: tuple[str, ...]
    npm: tuple[str, ...] = ()


def folder_of_cache() -> Path:
    """The folder of all environments, unless a person names another."""
    return platformdirs.user_cache_path("keep-actors") / "bench-peers"


def environment(name: str, packages: Packages, environments: Path) -> Path:
    """The folder of an environment with these packages, made if it is not there. Raise `Unavailable` if it cannot."""
    key = hashlib.sha256(repr((sys.version, packages)).encode()).hexdigest()[:12]
    folder = environments / f"{name}-{key}"
    if (folder / _READY).exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    install([sys.executable, "-m", "venv", str(folder)])
    install([str(python_of(folder)), "-m", "pip", "install", "--quiet", *packages.pip])
    if packages.npm:
        if shutil.which("npm") is None:
            raise Unavailable(f"{', '.join(packages.npm)} is a package of npm, which is not installed")
        options = ("--no-package-lock", "--no-fund", "--no-audit", "--ignore-scripts", "--silent")
        install(["npm", "install", "--prefix", str(folder), *options, *packages.npm])
    (folder / _READY).touch()
    return folder


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def install(command: Sequence[str]) -> None:
    """Run one command of an installation. Raise `Unavailable` with its last words if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"`{command[0]}` did not succeed: {error}") from error
    if done.returncode != 0:
        words = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Unavailable(words[-1] if words else f"`{command[0]}` ended with {done.returncode}")
