"""A file that somebody else made, looked into: every command ends in words, with no traceback and without waiting."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from keep_actors.cli.main import main
from keep_storage import Store
from tests.cli.test_without_runtime import stopped
from tests.storage.crafted import CRAFTED, disguised, healthy

__all__ = ["stopped"]

TAKES_ORDERS: Final = """export default Keep.workflow({ name: "signed out", topics: ["orders"], consumers: { ship: {
  subscribe: ["orders"],
  async prepare(ctx) {
    const [order] = await ctx.peek("orders");
    return { reservations: order ? [{ topic: "orders", ids: [order.messageId] }] : [], data: order?.payload };
  },
  async mutate() {},
} } });"""
LOOKS: Final = {
    "doctor": ("doctor", "{db}"),
    "status": ("status", "--db", "{db}"),
    "status of one": ("status", "{workflow}", "--db", "{db}"),
    "attention": ("attention", "--db", "{db}"),
    "log": ("log", "--db", "{db}"),
    "runs": ("runs", "{workflow}", "--db", "{db}"),
    "inputs": ("inputs", "{workflow}", "--db", "{db}"),
    "outputs": ("outputs", "{workflow}", "--db", "{db}"),
    "items": ("items", "{workflow}", "--db", "{db}"),
    "explain": ("explain", "{run}", "--db", "{db}"),
    "one item": ("items", "{workflow}", "order-1", "--db", "{db}"),
    "repair show": ("repair", "show", "{workflow}", "--db", "{db}"),
    "dry-run": ("dry-run", "{db}.js", "--workflow", "signed out", "--no-reads", "--sandbox", "thread", "--db", "{db}"),
    "backup": ("backup", "{db}-copy", "--db", "{db}"),
}


def keep(db: Path, command: str, *more: str, workflow: str = "lost", run: str = "run_1") -> Result:
    Path(f"{db}.js").write_text(TAKES_ORDERS)
    words = [each.format(db=db, workflow=workflow, run=run) for each in LOOKS[command]]
    return CliRunner().invoke(main, [*words, *more])


def in_words(result: Result) -> bool:
    """It ended by itself and said why: a traceback is what an exception becomes that nobody has caught."""
    return result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("what", CRAFTED)
def test_every_command_ends_in_words_whatever_the_file_is(tmp_path: Path, what: str) -> None:
    db = healthy(tmp_path / "keep.db")
    CRAFTED[what](db)
    for command in LOOKS:
        for options in ((), ("--json",)):
            result = keep(db, command, *options)
            assert in_words(result), (command, result.exception)
            if what not in ("a page of noise", "a tree that holds one page many times") or command == "doctor":
                assert result.exit_code in (1, 2), (command, result.output)
                assert result.output.strip(), command
    assert not Path(f"{db}-copy").exists()


def columns(db: Path) -> list[tuple[str, str]]:
    with closing(apsw.Connection(str(db))) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return [
            (str(table), str(row[1]))
            for table in tables
            for row in connection.execute(f"PRAGMA table_info({table})").fetchall()
        ]


VALUES: Final = (
    "NULL",
    "x'00ff'",
    "'garbage'",
    "''",
    "CAST(x'ff41' AS TEXT)",
    "-9223372036854775808",
    "9223372036854775807",
    "1e308",
    "printf('%.*c', 3000000, 'x')",
    "'{\"a\":'",
    "'[' || replace(hex(zeroblob(5000)), '00', '[')",
    "char(27) || '[2J' || char(8238)",
)


def test_every_command_looks_at_a_file_in_which_nothing_is_wrong(stopped: Path, tmp_path: Path) -> None:
    """Else it would prove little that each ends in words."""
    db = Path(shutil.copy(stopped, tmp_path / "keep.db"))
    with closing(apsw.Connection(str(db))) as connection:
        [(run,)] = connection.execute("SELECT run_id FROM mutations ORDER BY id LIMIT 1")
    refused = {command for command in LOOKS if keep(db, command, run=str(run)).exit_code in (1, 2)}
    assert refused == {"one item", "repair show"}, "there is no such thing in it"


def test_a_dry_run_ends_in_words_where_a_handler_is_of_no_kind(stopped: Path, tmp_path: Path) -> None:
    db = Path(shutil.copy(stopped, tmp_path / "keep.db"))
    disguised(db, "handlers", "UPDATE handlers SET kind = ''")
    result = keep(db, "dry-run")
    assert (in_words(result), result.exit_code) == (True, 1)
    assert "something in it cannot be read" in result.output


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_command_ends_in_words_whatever_is_in_its_rows(
    stopped: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """The schema is ours to the letter, and a column has anything in it."""
    db = tmp_path / "keep.db"
    for each in tmp_path.iterdir():
        each.unlink()
    shutil.copy(stopped, db)
    with closing(apsw.Connection(str(db))) as connection:
        [(run,)] = connection.execute("SELECT run_id FROM mutations ORDER BY id LIMIT 1")
    table, column = data.draw(st.sampled_from(columns(db)))
    value = data.draw(st.sampled_from(VALUES))
    try:
        disguised(db, table, f"UPDATE OR REPLACE {table} SET {column} = {value}")
    except (apsw.ConstraintError, apsw.MismatchError):
        reject()
    for command in LOOKS:
        result = keep(db, command, *data.draw(st.sampled_from([(), ("--json",)])), run=str(run))
        assert in_words(result), (command, result.exception)


RUNTIME: Final = """
import os, sys, time
from keep_storage import Store
store = Store.open(sys.argv[1])
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("ready", flush=True)
time.sleep(60)
"""


def test_status_does_not_call_a_dead_process_running(tmp_path: Path) -> None:
    """Something that the runtime had started has its lock, and the runtime is dead."""
    db = tmp_path / "keep.db"
    Store.open(db).close()
    with subprocess.Popen(
        [sys.executable, "-c", RUNTIME, db], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as runtime:
        assert runtime.stdout is not None
        assert runtime.stdin is not None
        runtime.stdout.readline()
        assert f"running (process {runtime.pid})" in keep(db, "status").output
        os.kill(runtime.pid, signal.SIGKILL)
        runtime.wait()
        assert "Runtime: not running." in keep(db, "status").output
        runtime.stdin.close()
