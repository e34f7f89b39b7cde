"""Options that several commands have, each under one name, and the completion of workflow names in a shell."""

import getpass
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click
import msgspec
from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., Any])


def db_option(command: Command) -> Command:
    kind = click.Path(dir_okay=False, path_type=Path)
    said = "The database file."
    return click.option("--db", type=kind, required=True, envvar="KEEP_DB", show_envvar=True, help=said)(command)


def json_option(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of text.")(command)


def control_option(command: Command) -> Command:
    kind = click.Path(dir_okay=False, path_type=Path)
    said = "The control socket, if it is not beside the database."
    return click.option("--control", type=kind, envvar="KEEP_CONTROL", show_envvar=True, help=said)(command)


def by_option(command: Command) -> Command:
    said = "Who says so, for the journal. Your login name unless it is said."
    return click.option("--by", default=_login, metavar="WHO", help=said)(command)


def why_option(command: Command) -> Command:
    return click.option("--why", default="", metavar="TEXT", help="The reason, for the journal.")(command)


def limit_option(command: Command) -> Command:
    kind = click.IntRange(1, 1000)
    return click.option("--limit", type=kind, default=20, show_default=True, help="How many at most.")(command)


def workflow_argument(*, required: bool = True, archived: bool = False) -> Callable[[Command], Command]:
    complete = archived_names if archived else workflow_names
    return click.argument("workflow", required=required, shell_complete=complete)


def workflow_option(command: Command) -> Command:
    return click.option("--workflow", shell_complete=workflow_names, help="Only of this one, by name or id.")(command)


def looks(command: Command) -> Command:
    """The options of every command that only looks, and words for what it cannot read or show."""

    @wraps(command)
    def guarded(*args: Any, db: Path, **more: Any) -> Any:
        from keep_actors.cli.looking import readable

        with readable(db):
            return command(*args, db=db, **more)

    return db_option(json_option(cast("Command", guarded)))


def changes(command: Command) -> Command:
    """The options of every command that changes something."""
    return db_option(control_option(by_option(json_option(command))))


def workflow_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the workflows in the database that `--db` or `KEEP_DB` names; none if it cannot be read."""
    return _names(ctx, incomplete, archived=False)


def archived_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same, of the archived ones."""
    return _names(ctx, incomplete, archived=True)


def _names(ctx: click.Context, incomplete: str, *, archived: bool) -> list[CompletionItem]:
    from keep_actors.cli.exits import Stopped
    from keep_actors.cli.looking import looking
    from keep_actors.cli.terminal import plain
    from keep_actors.text.visible import is_plain
    from keep_storage import reads

    db = ctx.params.get("db")
    if db is None:
        return []
    try:
        with looking(Path(db)) as look:
            return [
                CompletionItem(each.name, help=plain(each.status))
                for each in reads.workflows(look.q)
                if (each.status == "archived") is archived and each.name.startswith(incomplete) and is_plain(each.name)
            ]
    except Stopped:
        return []


def json_value(text: str, option: str) -> Any:
    """JSON as it was typed, or in the file behind an `@`. Raises `click.UsageError`."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise click.UsageError(f"{option}: {text[1:]} cannot be read: {error}.") from None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(
            f"{option} is no JSON: {error}. A text needs quotes of its own: {option} '\"text\"'."
        ) from None


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise click.UsageError("You have no login name here. Say who you are: --by WHO") from None
