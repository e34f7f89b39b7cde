"""The storage under load: group commit, beside the minimum that SQLite has to do, and beside the obvious way."""

import sqlite3
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

import aiosqlite
import apsw

from bench import machine
from bench.report import Report
from bench.storage import footprint, memory, scale, throughput
from bench.storage.throughput import Crowd

MEASURES: Final = (
    "consumer cycles per second through the storage actor: create the run; prepared, with one reservation; mutating "
    "and the ledger row in flight; applied; commit with one publish. Five operations, each awaited until durable",
    "each caller has a workflow of its own, whose consumer reads the topic it publishes to: a cycle reserves what the "
    "cycle before it published",
    "the floor: the same statements and bindings in the same batches by plain APSW in one thread",
    "aiosqlite: the same statements, one per await, one commit per operation, one connection behind a lock",
    "bytes per run: growth of the file, by table and index; whole pages written to the write-ahead log",
    "memory over many cycles; peek, publish and claim in a small and in a large topic",
)
LEAVES_OUT: Final = (
    "sandbox, connectors, workflow actors, network: a real cycle also runs JavaScript and calls something",
    "readers beside the writer, recovery, large payloads; what checkpoints copy from the log to the file",
    "other disks: every commit waits for the fsync of this machine's",
    "SQLite versions: aiosqlite has the interpreter's own, ours the one in APSW",
)


class Size(NamedTuple):
    """The sizes of all parts."""

    crowds: tuple[Crowd, ...]
    memory: memory.Size
    scale: scale.Size
    footprint: tuple[footprint.Size, ...]


FULL: Final = Size(
    (Crowd(1, 150, 60, 7), Crowd(16, 32, 6, 7), Crowd(256, 4, 1, 9), Crowd(1000, 2, 1, 3)),
    memory=memory.Size(256, 200_000),
    scale=scale.Size(1_000, 1_000_000, rounds=6),
    footprint=(
        footprint.Size(1, 2_000, 0),
        footprint.Size(64, 60, 0),
        footprint.Size(64, 60, 100_000),
        footprint.Size(1, 500, 100_000),
    ),
)
QUICK: Final = Size(
    (Crowd(1, 20, 20, 2), Crowd(16, 6, 3, 2), Crowd(256, 2, 1, 2), Crowd(1000, 1, 0, 1)),
    memory=memory.Size(256, 2_048),
    scale=scale.Size(1_000, 100_000, rounds=2),
    footprint=(footprint.Size(1, 300, 0), footprint.Size(64, 10, 0), footprint.Size(64, 10, 20_000)),
)


def run(report: Report, *, quick: bool) -> None:
    measure(report, QUICK if quick else FULL)


def measure(report: Report, size: Size) -> None:
    with tempfile.TemporaryDirectory() as folder:
        report.about(
            MEASURES,
            LEAVES_OUT,
            {
                "machine": machine.describe(),
                "apsw": apsw.apsw_version(),
                "aiosqlite": f"{aiosqlite.__version__} on SQLite {sqlite3.sqlite_version}",
                "files_in": str(Path(folder).parent),
                "fsync_us": machine.fsync_us(Path(folder)),
            },
        )
    # Memory first, before the recordings of the others take memory.
    memory.run(report, size.memory)
    footprint.run(report, size.footprint)
    throughput.run(report, size.crowds)
    scale.run(report, size.scale)
