"""Options: those that several commands share, and those that are derived from the fields of a declared command."""

import getpass
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin, get_type_hints

import click
import msgspec
from click.shell_completion import CompletionItem
from msgspec.structs import FieldInfo

from keep_actors.cli.terminal import plain

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
_File = click.Path(dir_okay=False, path_type=Path)

db_option = click.option(
    "--db", type=_File, required=True, envvar="KEEP_DB", show_envvar=True, help="The database file."
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of text.")
json_object_option = click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
control_option = click.option(
    "--control",
    type=_File,
    envvar="KEEP_CONTROL",
    show_envvar=True,
    help="The control socket, if it is not beside the database.",
)
limit_option = click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most this many."
)
full_option = click.option("--full", is_flag=True, help="Show calls whole, however long they are.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, yes: bool) -> None:
    """Go on only if a person agrees. Raises `click.Abort`, or `click.UsageError` where there is no terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{plain(question)} There is no terminal to ask on: to agree, add --yes.")
    click.confirm(plain(question), abort=True, err=True)


# Commands that look.


def looks(command: Callable[..., Any]) -> Callable[..., None]:
    """Give a command a `FileReader` of the database that `--db` names, open for as long as it works."""

    @wraps(command)
    def opened(*, db: Path, as_json: bool, control: Path | None = None, **typed: Any) -> None:
        from keep_actors.cli.reader import reading

        with reading(db, control, as_json=as_json) as look:
            command(look, **typed)

    return db_option(json_option(opened))


def workflow_argument(*, required: bool = True, archived: bool = False) -> Callable[[Decorated], Decorated]:
    complete = archived_names if archived else workflow_names
    return click.argument("workflow", required=required, shell_complete=complete)


def workflow_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of the workflows in the database that `--db` or `KEEP_DB` names; none if it is unreadable."""
    return _names(ctx, incomplete, archived=False)


def archived_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of the archived ones."""
    return _names(ctx, incomplete, archived=True)


workflow_option = click.option("--workflow", shell_complete=workflow_names, help="Only this workflow, by name or id.")


def _names(ctx: click.Context, incomplete: str, *, archived: bool) -> list[CompletionItem]:
    from keep_actors.cli.exit_codes import Stopped
    from keep_actors.cli.reader import reading
    from keep_actors.text.visible import is_plain
    from keep_storage import reads

    db = ctx.params.get("db")
    if db is None:
        return []
    try:
        with reading(Path(db)) as look:
            return [
                CompletionItem(each.name, help=plain(each.status))
                for each in reads.workflows(look.q)
                if (each.status == "archived") is archived and each.name.startswith(incomplete) and is_plain(each.name)
            ]
    except Stopped:
        return []


# Commands that change something.


def changes(declared: Any, *without: str, **spelled: str) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Give a command a `WritePath`, and an option or an argument for each field of a declared command.

    A field with a default is an option, one without is an argument; `spelled` has the option for a field that is named
    or asked for differently here. `by` is part of the write path.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., None]:
        @wraps(command)
        def opened(*, db: Path, control: Path | None, as_json: bool, by: str = "", **typed: Any) -> None:
            from keep_actors.cli.write_path import WritePath

            command(WritePath(db, control, by, as_json), **typed)

        decorated: Callable[..., None] = db_option(control_option(json_option(opened)))
        for field in reversed(msgspec.structs.fields(declared)):
            if field.name != "v" and field.name not in without:
                decorated = _parameter(declared, field, spelled.get(field.name))(decorated)
        return decorated

    return decorate


_WITHOUT_RUNTIME: Final = (
    "Works without a runtime: the change is then written into the file, and the next start continues from there."
)


def help_of(declared: Any, *examples: str, more: str = "") -> str:
    """The help of a command: the words of its declaration, and `more` about how it is used here."""
    parts = [inspect.getdoc(declared) or "", *([more] if more else [])]
    if not declared.needs_runtime:
        parts.append(_WITHOUT_RUNTIME)
    return "\n\n".join([*parts, "\b\n" + "\n".join(f"keep {each} --db keep.db" for each in examples)])


_KINDS: Final[Mapping[Any, dict[str, Any]]] = {
    str: {},
    int: {"type": int, "metavar": "N"},
    bool: {"is_flag": True},
    list: {"multiple": True, "metavar": "TOPIC"},
    dict: {"multiple": True, "metavar": "OLD=NEW"},
    Any: {"metavar": "JSON|@FILE"},
}
"""The form of an option, by the type of its field."""


def _parameter(declared: Any, field: FieldInfo, spelled: str | None = None) -> Callable[[Any], Any]:
    hint = get_type_hints(declared, include_extras=True)[field.name]
    kind, words = (hint.__origin__, hint.__metadata__[0].description) if get_origin(hint) is Annotated else (hint, "")
    complete = workflow_names if field.name == "workflow" else None
    if field.name == "by":
        return click.option("--by", default=_login, metavar="WHO", help=f"{words} Default: your login name.")
    if field.required and spelled is None:
        return click.argument(field.name, shell_complete=complete)
    [kind] = [each for each in get_args(kind) if each is not NoneType] if isinstance(kind, UnionType) else [kind]
    form = dict(_KINDS[get_origin(kind) or kind])
    if "multiple" in form:
        words = f"{words} Can be repeated."
    if get_origin(kind) is dict:
        form["callback"] = _pairs
    if isinstance(field.default, str):
        form["default"] = field.default
    name = spelled or f"--{field.name.replace('_', '-')}"
    return click.option(name, field.name, help=words, required=field.required, shell_complete=complete, **form)


def declared_options(declared: Any, *names: str) -> Callable[[Decorated], Decorated]:
    """Give a command the options of these fields of a declared command."""

    def decorate(command: Decorated) -> Decorated:
        for field in reversed(msgspec.structs.fields(declared)):
            if field.name in names:
                command = _parameter(declared, field)(command)
        return command

    return decorate


def grant_options(command: Callable[..., Any]) -> Callable[..., None]:
    """`--accept`, `--grant` and `--ask`, which arrive as the `grants` of a deployment."""

    @wraps(command)
    def given(*, accept: bool, granted: tuple[str, ...], asked: tuple[str, ...], **typed: Any) -> None:
        from keep_actors.policy import Grant

        if accept and (granted or asked):
            raise click.UsageError("--accept grants everything that is named; leave it out to grant one by one.")
        one_by_one = [Grant(each) for each in granted] + [Grant(each, "ask") for each in asked]
        command(grants="declared" if accept else one_by_one, **typed)

    accept = click.option("--accept", is_flag=True, help="Grant every permission that the scripts name.")
    said = "Grant this one, as in gmail.send. Can be repeated."
    grant = click.option("--grant", "granted", multiple=True, metavar="PERMISSION", help=said)
    said = "Grant this one; a person approves each call."
    return accept(grant(click.option("--ask", "asked", multiple=True, metavar="PERMISSION", help=said)(given)))


def _pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        old, equals, new = each.partition("=")
        if not (old and equals and new):
            raise click.BadParameter(f"{each!r} is not OLD=NEW.")
        if old in pairs:
            raise click.BadParameter(f"the events of {old!r} cannot go to two topics.")
        pairs[old] = new
    return pairs


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
            f"{option} is not JSON: {error}. A string needs its own quotes: {option} '\"text\"'."
        ) from None


def _login() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):
        raise click.UsageError("There is no login name here. Name yourself: --by WHO") from None
