"""`keep connectors`: what scripts can call here, with permissions and risks. `keep connector new`: one of your own."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from keep_actors.cli.inputs import ChosenConnectors, connector_options
from keep_actors.cli.options import json_object_option, json_option
from keep_actors.cli.terminal import brief, fields, json_line, plain, show, show_each, table

if TYPE_CHECKING:
    from keep_actors.connectors import Method

_ABOUT_MAX: Final = 60


class MethodLine(msgspec.Struct, frozen=True):
    """A method that scripts can call."""

    name: str
    kind: str
    """`read`, `read by id` or `mutation`."""
    permission: str
    risk: str
    unknown_outcome: str
    """The way to settle an outcome that is not known; empty for a read."""
    about: str


class KindLine(msgspec.Struct, frozen=True):
    """A connector that is there, to be named in a file of settings."""

    kind: str
    about: str
    install: str
    """The command that installs what it needs; empty if nothing is missing."""


@click.command()
@connector_options
@json_option
def connectors(chosen: ChosenConnectors, as_json: bool) -> None:
    """List the methods of connectors, with the permission and the risk of each; or the kinds of connectors there are.

    \b
    keep connectors                         the kinds that a file of settings can name
    keep connectors --config keep.toml      the methods of those that it names

    Nothing is connected. The last column says what is done when the outcome of a call is unknown: the connector is
    asked, or a person.
    """
    if not chosen:
        _show_kinds(as_json)
        return
    from keep_actors.connectors import Catalog, ConnectorDefinitionError

    try:
        catalog = Catalog(chosen.load())
    except ConnectorDefinitionError as error:
        raise click.UsageError(str(error)) from None
    lines = [method_line(method) for method in catalog.methods.values()]
    if as_json:
        show_each(lines)
        return
    headings = ("METHOD", "KIND", "RISK", "IF UNKNOWN", "PERMISSION", "ABOUT")
    table(
        headings,
        [
            (each.name, each.kind, each.risk, each.unknown_outcome, each.permission, brief(each.about, _ABOUT_MAX))
            for each in lines
        ],
    )


def method_line(method: "Method") -> MethodLine:
    kind = "read by id" if method.by_id else method.kind
    settled = "" if method.kind == "read" else "is asked" if method.reconcilable else "a person"
    about = method.description.partition("\n")[0]
    return MethodLine(method.full_name, kind, method.permission, method.risk, settled, about)


def _show_kinds(as_json: bool) -> None:
    from keep_actors.services.configuration import KINDS

    lines = [
        KindLine(name, kind.about, "" if kind.is_installed else f"pip install 'keep-actors[{kind.extra}]'")
        for name, kind in KINDS.items()
    ]
    if as_json:
        show_each(lines)
        return
    table(("KIND", "ABOUT", "NEEDS"), [(each.kind, each.about, each.install) for each in lines])
    show("\nName one in a file of settings, and give the file to a command: keep connectors --config keep.toml")


@click.group()
def connector() -> None:
    """Connectors of your own.

    \b
    keep connector new parcels
    """


@connector.command("new")
@click.argument("name")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="The folder to write into. Default: this one.",
)
@json_object_option
def new_connector(name: str, folder: Path, as_json: bool) -> None:
    """Write a connector with its test, its certification and its settings: three files that work, to be changed.

    \b
    keep connector new parcels
    python -m pytest test_parcels.py
    keep certify parcels:Parcels

    NAME is its name in scripts, as in ctx.parcels. Files that exist are never changed.
    """
    from keep_actors.authoring.new_connector import NameUnusable, new_files, title_of

    try:
        files = new_files(name)
    except NameUnusable as error:
        raise click.UsageError(str(error)) from None
    written = _write_all(folder, files)
    if as_json:
        show(json_line({"connector": name, "files": [str(path) for path in written]}))
        return
    show(f"Wrote {', '.join(plain(str(path)) for path in written)}.")
    fields(
        [
            ("test it", f"python -m pytest {written[1]}"),
            ("certify it", f"keep certify {name}:{title_of(name)}"),
            ("use it", f"keep connectors --config {written[2]}"),
        ],
        indent="  ",
    )


def _write_all(folder: Path, files: dict[str, str]) -> list[Path]:
    """Write all files or none, and change no file that exists."""
    paths = [folder / name for name in files]
    for path in paths:
        if path.exists():
            raise click.UsageError(f"There is already {path}. Choose another name, or another folder: --dir.")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, files.values(), strict=True):
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise click.ClickException(f"{error.filename or folder} cannot be written: {error.strerror}.") from None
    return written
