"""`keep run`: a runtime in a shell. Deploys scripts, shows the journal as it is written, ends in order when told to."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import click

import keep_actors
from keep_actors.api import commands
from keep_actors.api.keep import Keep
from keep_actors.authoring.admission import DeployRefused, NameTaken
from keep_actors.cli.exit_codes import Exit
from keep_actors.cli.history import journal_after, journal_json, journal_text
from keep_actors.cli.inputs import ChosenConnectors, connector_options, sandbox_option, script_file, source_of
from keep_actors.cli.options import db_option, declared_options, grant_options, json_option
from keep_actors.cli.scripts import refuse_unclear_topics
from keep_actors.cli.terminal import plain, plain_lines, remark, show
from keep_actors.cli.write_path import ACCEPT_PERMISSIONS, SETTLE_EVENTS
from keep_actors.connectors import (
    Connector,
    ConnectorDefinitionError,
    ConnectorLoadError,
    ConnectorNotOpened,
)
from keep_actors.control.place import NO_SOCKETS, ControlUnavailable, has_sockets
from keep_actors.kernel import ActorError
from keep_actors.permissions import PermissionsNeeded
from keep_actors.sandbox_pool import SandboxUnavailable
from keep_actors.sandbox_pool.policy import Sharing
from keep_actors.sandbox_pool.pool import PoolMode
from keep_sandbox import EngineUnsuitable, JailUnavailable
from keep_storage import Store, reads
from keep_storage.errors import EventsWouldWait, Rejected, StorageError
from keep_storage.model import JournalEntry, WorkflowStatus

_REFUSALS: Final = (
    ConnectorNotOpened,
    DeployRefused,
    Rejected,
    StorageError,
    SandboxUnavailable,
    JailUnavailable,
    EngineUnsuitable,
    ControlUnavailable,
)
"""Refusals, which are no bugs: their text says what is wrong and what to do."""

_ENDS: Final = tuple(
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGBREAK") if name in signal.Signals.__members__
)
"""The signals that end it; SIGBREAK is the Ctrl-Break of Windows."""


class _Ended(Exception):
    """It could not go on. The text is for people."""


@click.command()
@click.argument("files", nargs=-1, type=script_file(), metavar="[FILE.js]...")
@db_option
@connector_options
@grant_options
@declared_options(commands.DeployScript, "author", "owner", "timezone", "drop", "move")
@click.option(
    "--workflow",
    "replaced",
    multiple=True,
    metavar="NAME",
    help="The script of this workflow may be replaced by that of a FILE with its name. Can be repeated.",
)
@click.option("--once", is_flag=True, help="End when nothing is left to do now.")
@json_option
@sandbox_option
@click.option(
    "--sharing",
    type=click.Choice(["owner", "all", "none"]),
    default="owner",
    show_default=True,
    help="The workflows that may share a process of the sandbox: those of one owner, all or none.",
)
@click.option(
    "--control/--no-control",
    default=None,
    help="Listen beside the database for the other commands, from this user and root. Default: on, if possible.",
)
def run(
    files: tuple[Path, ...],
    db: Path,
    chosen: ChosenConnectors,
    replaced: tuple[str, ...],
    once: bool,
    as_json: bool,
    sandbox: PoolMode,
    sharing: Sharing,
    control: bool | None,
    **options: Any,
) -> None:
    """Deploy scripts into a database and run what is in it.

    The journal is written to the standard output, a line for each entry, beginning with the recovery after a process
    that died. Everything else is written to the standard error.

    Ctrl-C (or SIGTERM) ends it in order: active runs finish, for up to ten seconds. A second one ends
    it at once, as a crash would; the next start settles what was cut off.

    \b
    keep run mail_to_sheets.js --db keep.db --connectors examples.connectors:demo --accept
    keep run --db keep.db --discover            what was deployed before
    keep run FILE.js --db keep.db --once        end when there is nothing to do
    keep run FILE.js --db keep.db --workflow mails    the file has changed since

    A script may call what it was granted: without --accept, --grant or --ask, a script that needs permissions is
    refused, with a list of them. One that no longer declares a topic in which events wait is refused too, until --drop
    or --move settles them.

    A FILE that has changed since it was deployed is refused until --workflow names the workflow whose script it
    replaces: a file from elsewhere may have the same name, and would use the grants of that workflow.

    At the start, a remark names each workflow whose script uses a method that no connector here has: its runs would
    stop.

    Exits with 0; with 1 when a script was refused or the file cannot be used; with 2 for a wrong use of this command;
    with --once as `keep attention` does: with 4 when something waits for a person.
    """
    refuse_unclear_topics(files, options["drop"], options["move"])
    scripts = [(file, source_of(file)) for file in files]
    if not scripts and not db.exists():
        raise click.UsageError(f"There is no {db} yet. Name a script to deploy: keep run FILE.js --db {db}")
    if control is None and not has_sockets():
        remark(f"Other processes cannot reach this runtime: {NO_SOCKETS}.")
    # The journal that is shown here has it all.
    logging.getLogger("keep_actors.news").setLevel(logging.CRITICAL)
    as_line = journal_json if as_json else journal_text
    try:
        connectors = chosen.load()
        deploy = partial(_deploy, scripts, replaced, **options)
        listens = has_sockets() if control is None else control
        waiting = anyio.run(_run, deploy, db, connectors, once, as_line, sandbox, sharing, listens)
    except (ConnectorLoadError, ConnectorDefinitionError) as error:
        raise click.UsageError(str(error)) from None
    except (_Ended, *_REFUSALS) as error:
        raise click.ClickException(plain_lines(str(error))) from None
    for words in waiting:
        remark(plain(words))
    sys.exit(Exit.WAITING if waiting else Exit.OK)


async def _run(
    deploy: Callable[[Keep], Awaitable[None]],
    db: Path,
    connectors: list[Connector],
    once: bool,
    as_line: Callable[[JournalEntry], str],
    sandbox: PoolMode,
    sharing: Sharing,
    control: bool,
) -> list[str]:
    """Run until told to end. Returns what waits for a person, if this was to be done `once`."""
    shown = _Journal(db, as_line)
    waiting: list[str] = []
    failure: Exception | None = None
    work = anyio.CancelScope()
    # The tasks are outside: entries that are written while the runtime ends are shown too.
    async with anyio.create_task_group() as tasks:
        await tasks.start(_listen, work)
        try:
            async with keep_actors.open(
                db, connectors=connectors, sandbox=sandbox, sharing=sharing, control=control
            ) as keep:
                keep_actors.tune_process()
                tasks.start_soon(shown.follow, keep, work)
                with work:
                    await deploy(keep)
                    await _say_what_is_missing(keep)
                    await _say_what_runs(keep, db)
                    await (keep.wait_idle() if once else anyio.sleep_forever())
                waiting = await _waiting(keep) if once else []
        except (_Ended, click.UsageError, ConnectorDefinitionError, *_REFUSALS) as error:
            # Not from inside the task group: people are not shown groups of exceptions.
            failure = error
        tasks.cancel_scope.cancel()
    failure = failure or shown.broken
    if not isinstance(failure, StorageError | BrokenPipeError):
        shown.show_rest()
    if failure is not None:
        raise failure
    return waiting


async def _listen(work: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Let the first signal end the work, and the second one the process."""
    try:
        with anyio.open_signal_receiver(*_ENDS) as signals:
            task_status.started()
            async for _ in signals:
                break
    except NotImplementedError:  # asyncio on Windows
        came = anyio.Event()
        wake = asyncio.get_running_loop().call_soon_threadsafe
        for each in _ENDS:
            signal.signal(each, lambda *_: wake(came.set))
        task_status.started()
        await came.wait()
    for each in _ENDS:
        signal.signal(each, signal.SIG_DFL)
    remark("Ending: active runs finish …")
    work.cancel()


async def _deploy(scripts: list[tuple[Path, str]], replaced: tuple[str, ...], keep: Keep, **options: Any) -> None:
    for file, source in scripts:
        try:
            try:
                deployed = await keep.deploy(source, **options)
            except NameTaken as taken:
                # Only the inspection knows the name: it is looked for among those that were typed.
                if taken.name not in replaced:
                    raise
                deployed = await keep.deploy(source, workflow=taken.name, **options)
        except PermissionsNeeded as error:
            raise _Ended(f"{file}: {error}\n{ACCEPT_PERMISSIONS}") from None
        except EventsWouldWait as error:
            raise _Ended(f"{file}: {error}\n{SETTLE_EVENTS}") from None
        except (DeployRefused, Rejected) as error:
            raise _Ended(f"{file}: {error}") from None
        except ValueError as error:
            raise click.UsageError(f"{file}: {error}") from None
        remark(plain(f"{file}: {deployed.name} {deployed.version} ({deployed.workflow_id})"))


async def _say_what_is_missing(keep: Keep) -> None:
    """A line for each workflow whose script names what no connector here has."""
    for name, missing in await keep.missing_methods():
        calls = ", ".join(f"`ctx.{each}`" for each in missing)
        words = (
            f"{name}: its script names {calls}, which no connector here has, so its runs will stop. Add the connector"
        )
        remark(plain(f"{words}: --connectors MODULE:NAME, or --discover for those that are installed."))


async def _say_what_runs(keep: Keep, db: Path) -> None:
    workflows = await keep.workflows()
    if not workflows:
        raise click.UsageError(f"No workflow is in {db} yet. Name a script to deploy: keep run FILE.js --db {db}")
    names = [each.name for each in workflows if each.status is WorkflowStatus.ACTIVE]
    remark(plain(f"Running {', '.join(names) or 'nothing: no workflow is active'}. Ctrl-C ends it."))


async def _waiting(keep: Keep) -> list[str]:
    """The matters that need a person, a line for each."""
    lines: list[str] = []
    for each in await keep.attention():
        words = each.words
        if each.kind == "maintenance" and each.run_id is not None:
            words = (await keep.explain(each.run_id)).why  # with the place in the script
        lines.append(f"{each.workflow}: {words} {each.can_do}")
    return lines


class _Journal:
    """The journal as it is shown: all entries after its end before this process began."""

    def __init__(self, db: Path, as_line: Callable[[JournalEntry], str]) -> None:
        self._db = db
        self._as_line = as_line
        self.broken: BrokenPipeError | None = None
        """Its reader has gone."""
        with Store.open(db) as store:
            self._seen = reads.journal_end(store.queries())

    async def follow(self, keep: Keep, work: anyio.CancelScope) -> None:
        """Show entries as they are written. If their reader goes away, that is the end of the work."""
        try:
            async with aclosing(keep.watch(after=self._seen)) as entries:
                async for entry in entries:
                    self._echo(entry)
        except BrokenPipeError as error:
            self.broken = error
            work.cancel()
        except ActorError:
            # The runtime ended in the middle of a look. What was not seen is in the file.
            pass

    def show_rest(self) -> None:
        """Show the last entries, from the file."""
        with Store.open(self._db) as store:
            for entry in journal_after(store.queries(), self._seen):
                self._echo(entry)

    def _echo(self, entry: JournalEntry) -> None:
        show(self._as_line(entry))
        self._seen = entry.seq
