"""`keep run`: a runtime in a shell. Deploys scripts, shows what happens, ends in order on Ctrl-C."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import click
import msgspec

import keep_actors
from keep_actors.connectors import Connector, ConnectorLoadError, discover, load
from keep_actors.deployment import DeployRefused
from keep_actors.keep import Keep
from keep_actors.sandbox_pool import SandboxUnavailable
from keep_storage.errors import Rejected, StorageError
from keep_storage.model import JournalEntry


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE.js…")
@click.option("--db", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The database file.")
@click.option(
    "--connectors",
    "specs",
    multiple=True,
    metavar="MODULE:NAME",
    help="A connector, a class, a factory or a list of them. May be given several times.",
)
@click.option("--discover", "discovered", is_flag=True, help="Also use every connector that is installed.")
@click.option("--timezone", default="UTC", show_default=True, help="The time zone of cron schedules.")
@click.option("--once", is_flag=True, help="End when nothing is left to do now.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of text.")
@click.option(
    "--sandbox",
    type=click.Choice(["jailed", "weak", "thread"]),
    default="jailed",
    show_default=True,
    help="Only `jailed` is for scripts that are not trusted.",
)
def run(
    files: tuple[Path, ...],
    db: Path,
    specs: tuple[str, ...],
    discovered: bool,
    timezone: str,
    once: bool,
    as_json: bool,
    sandbox: str,
) -> None:
    """Deploy scripts into a database and run them, with everything that is in it already.

    Ctrl-C ends it in order: runs under way come to their end, for up to ten seconds.

    \b
    keep run mail_to_sheets.js --db keep.db --connectors examples.connectors:demo
    keep run --db keep.db --discover            what was deployed before
    keep run FILE.js --db keep.db --once        end when there is nothing to do

    Exits with 0; with 1 when a script was refused, the file cannot be used, or (with --once) a workflow waits for a
    person; with 2 for a wrong use of this command.
    """
    sys.path.insert(0, "")
    show = _as_json if as_json else _as_text
    try:
        connectors = [each for spec in specs for each in load(spec)] + (discover() if discovered else [])
    except ConnectorLoadError as error:
        raise click.UsageError(str(error)) from None
    try:
        waiting = anyio.run(_run, files, db, connectors, timezone, once, show, sandbox)
    except (DeployRefused, Rejected, StorageError, SandboxUnavailable) as error:
        raise click.ClickException(str(error)) from None
    for words in waiting:
        click.echo(words, err=True)
    sys.exit(1 if waiting else 0)


async def _run(
    files: tuple[Path, ...],
    db: Path,
    connectors: list[Connector],
    timezone: str,
    once: bool,
    show: Callable[[JournalEntry], str],
    sandbox: str,
) -> list[str]:
    """Run until told to end. Returns what waits for a person, if this was to be done `once`."""
    async with (
        keep_actors.open(db, connectors=connectors, sandbox=sandbox) as keep,  # type: ignore[arg-type]  # a choice
        anyio.create_task_group() as tasks,
    ):
        await tasks.start(_show_journal, keep, show)
        for file in files:
            try:
                deployed = await keep.deploy(file.read_text("utf-8"), timezone=timezone)
            except DeployRefused as error:
                tasks.cancel_scope.cancel()
                raise click.ClickException(f"{file}: {error}") from None
            click.echo(f"{file}: {deployed.name} {deployed.version} ({deployed.workflow_id})", err=True)
        if once:
            await keep.wait_idle()
        else:
            await _told_to_end()
        waiting = await _waiting(keep) if once else []
        tasks.cancel_scope.cancel()
        return waiting
    raise AssertionError("the block returns or raises")


async def _show_journal(
    keep: Keep, show: Callable[[JournalEntry], str], *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    entries = keep.watch()
    task_status.started()
    async for entry in entries:
        click.echo(show(entry))


async def _told_to_end() -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            click.echo("Ending: runs under way come to their end …", err=True)
            return


async def _waiting(keep: Keep) -> list[str]:
    found = [each for each in await keep.workflows() if each.error or each.maintenance]
    return [f"{each.name}: {each.error or 'the script failed; deploy a repaired one'}" for each in found]


def _as_text(entry: JournalEntry) -> str:
    changed = ", ".join(f"{name} {value}" for name, value in msgspec.json.decode(entry.changed).items())
    why = f"  {entry.why}" if entry.why else ""
    return f"{entry.seq:>6}  {entry.operation:<26} {entry.run_id or entry.workflow_id or '':<33} {changed}{why}"


def _as_json(entry: JournalEntry) -> str:
    fields = msgspec.structs.asdict(entry) | {"changed": msgspec.Raw(entry.changed.encode())}
    return msgspec.json.encode(fields).decode()
