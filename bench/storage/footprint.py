"""The traces of a run: bytes in the file, and bytes written to the log.

A commit writes whole pages to the log, so the fewer operations share one, the more is written for each run. The larger
the file, the farther apart are the pages that a workflow changes.
"""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import apsw

from bench.history import write_history
from bench.machine import own_garbage_only
from bench.report import Column, Report
from bench.storage.cycle import OPERATIONS_PER_CYCLE, cycle, deploy, new_callers
from keep_storage import Ids, Store, wall_clock
from keep_storage.sqlite import SqliteDatabase

GOAL_FILE_BYTES: Final = 2_000
GOAL_LOG_BYTES: Final[Mapping[tuple[int, bool], int]] = {(1, False): 122_000, (64, False): 24_000, (64, True): 37_000}
"""By callers, and whether the file has a history: half of what it was before rows referred to each other by number."""

_FRAME_HEADER_BYTES: Final = 24

COLUMNS: Final = (
    Column("history_runs", "runs before"),
    Column("callers", "callers"),
    Column("runs", "runs"),
    Column("file_bytes", "file bytes/run"),
    Column("log_bytes", "log bytes/run"),
    Column("log_pages", "pages/run", 1),
    Column("cpu_us", "CPU us/run"),
)
TABLE_COLUMNS: Final = (
    Column("name", "table or index", width=30),
    Column("file_bytes", "file bytes/run"),
    Column("rows", "rows/run", 1),
)


class Size(NamedTuple):
    """The numbers of callers, of cycles of each, and of runs that the file has before."""

    callers: int
    cycles_each: int
    history: int


class Left(NamedTuple):
    """The traces of the runs of one measurement, per run."""

    runs: int
    file_bytes: float
    log_pages: float
    log_bytes: float
    cpu_us: float


def run(report: Report, sizes: tuple[Size, ...]) -> None:
    report.progress("bytes per run")
    goals: list[tuple[Size, Left]] = []
    with tempfile.TemporaryDirectory() as folder:
        table = report.table(
            "bytes", "Bytes per run (each caller has a workflow; one operation of each in a commit)", COLUMNS
        )
        for number, size in enumerate(sizes):
            path = Path(folder) / f"{number}.db"
            left = measure(path, size)
            goals.append((size, left))
            table.row(
                history_runs=size.history,
                callers=size.callers,
                runs=left.runs,
                file_bytes=left.file_bytes,
                log_bytes=left.log_bytes,
                log_pages=left.log_pages,
                cpu_us=left.cpu_us,
            )
        parts = report.table("bytes_by_table", "Where the bytes of the first are", TABLE_COLUMNS)
        for name, file_bytes, rows in by_table(Path(folder) / "0.db"):
            parts.row(name=name, file_bytes=file_bytes / goals[0][1].runs, rows=rows / goals[0][1].runs)
    for size, left in goals:
        _goals(report, size, left)


def _goals(report: Report, size: Size, left: Left) -> None:
    where = f"at {size.callers} callers after {size.history:,} runs"
    words = f"bytes of a run in the file {where}, at most {GOAL_FILE_BYTES:,}"
    report.goal("bytes", words, left.file_bytes, left.file_bytes <= GOAL_FILE_BYTES)
    if limit := GOAL_LOG_BYTES.get((size.callers, size.history > 0)):
        words = f"bytes of a run in the log {where}, at most {limit:,}"
        report.goal("bytes", words, left.log_bytes, left.log_bytes <= limit)


def measure(path: Path, size: Size) -> Left:
    """Make a file with a history, and let each caller run its cycles, one operation of each caller in a commit."""
    ids = Ids(wall_clock)
    callers = new_callers(size.callers, ids)
    with Store.open(path) as store:
        for outcome in store.commit([each for caller in callers for each in deploy(caller, ids)]):
            outcome.unwrap()
    write_history(path, size.history)
    before = path.stat().st_size
    database = SqliteDatabase.open(str(path), now=wall_clock())
    connection, store = database._connection, Store(database)
    with own_garbage_only():
        pages, start = _pages_written(connection), time.thread_time()
        for number in range(size.cycles_each):
            cycles = [cycle(caller, number, ids) for caller in callers]
            for step in range(OPERATIONS_PER_CYCLE):
                for outcome in store.commit([each[step] for each in cycles]):
                    outcome.unwrap()
        cpu_s, pages = time.thread_time() - start, _pages_written(connection) - pages
    page_bytes = int(str(connection.pragma("page_size"))) + _FRAME_HEADER_BYTES
    store.close()
    runs = size.callers * size.cycles_each
    return Left(
        runs, (path.stat().st_size - before) / runs, pages / runs, pages * page_bytes / runs, cpu_s / runs * 1e6
    )


def _pages_written(connection: apsw.Connection) -> int:
    """To the log. What a checkpoint copies to the file is not counted."""
    return connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]


def by_table(path: Path, most: int = 12) -> list[tuple[str, int, int]]:
    """The largest tables and indexes of a file: bytes and rows."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        rows = connection.execute(
            "SELECT name, SUM(pgsize), SUM(CASE WHEN pagetype = 'leaf' THEN ncell ELSE 0 END) FROM dbstat"
            " GROUP BY name ORDER BY 2 DESC LIMIT ?",
            (most,),
        )
        return [(str(name), int(size), int(cells)) for name, size, cells in rows]
    finally:
        connection.close()
