"""The machine of a measurement: its disk, its memory, and fair timing."""

import datetime
import gc
import importlib.metadata
import mmap
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_FSYNCS: Final = 100
_FSYNC_BYTES: Final = 32 * 1024


def describe() -> str:
    implementation = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{implementation}, {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"


def facts() -> dict[str, str | float]:
    """The caption of a figure: the machine, the versions, the date, and the load before."""
    versions = {name: importlib.metadata.version(name) for name in ("keep-actors", "apsw", "wasmtime")}
    return {
        "machine": describe(),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load": load(),
    }


def load() -> float:
    """The load of the last minute: processes that run or want to. 0 if the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def fsync_us(folder: Path) -> float:
    """The median time of an fsync after a small write, in microseconds. Near 0: the folder is not on a disk."""
    path = folder / "fsync"
    taken: list[float] = []
    with path.open("wb") as file:
        for _ in range(_FSYNCS):
            file.write(b"x" * _FSYNC_BYTES)
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - start)
    path.unlink()
    return statistics.median(taken) * 1e6


def resident_bytes() -> int:
    """The resident memory of this process; its peak where the system does not tell; 0 if it tells neither."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * mmap.PAGESIZE
    try:
        import resource
    except ImportError:
        return 0  # Windows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@contextmanager
def own_garbage_only() -> Iterator[None]:
    """Exclude earlier objects from garbage collection, so that timed code pays only for its own."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
