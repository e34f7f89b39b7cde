"""Inputs of the commands for authors: scripts and connectors."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from keep_actors.connectors import Connector

F = TypeVar("F", bound=Callable[..., Any])

sandbox_option = click.option(
    "--sandbox",
    type=click.Choice(["jailed", "wasm", "thread"]),
    default="jailed",
    show_default=True,
    help="Only `jailed` is for scripts that are not trusted.",
)


def connector_options(command: F) -> F:
    """`--connectors` and `--discover`, which arrive as `specs` and `discovered`."""
    named = click.option(
        "--connectors",
        "specs",
        multiple=True,
        metavar="MODULE:NAME",
        help="A connector, a class, a factory or a list of them, installed or in this folder. Can be repeated.",
    )
    installed = click.option(
        "--discover", "discovered", is_flag=True, help="Also use every connector that is installed."
    )
    return named(installed(command))


def script_file(**more: Any) -> Any:
    """The type of an argument that names a script."""
    return click.Path(exists=True, dir_okay=False, path_type=Path, **more)


def connectors_from(specs: tuple[str, ...], discovered: bool) -> "list[Connector]":
    """The connectors that were named. One that cannot be loaded is a wrong use of the command."""
    from keep_actors.connectors import ConnectorDefinitionError, ConnectorLoadError, discover, load

    try:
        installed = discover() if discovered else []
        if specs:
            _import_from_here_last()
        return [each for spec in specs for each in load(spec)] + installed
    except (ConnectorLoadError, ConnectorDefinitionError) as error:
        raise click.UsageError(str(error)) from None


def _import_from_here_last() -> None:
    """Let `--connectors` name a module of the current folder. Behind everything that is installed: an `asyncio.py`
    in a folder of downloads is not executed when a person checks a script there."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


@contextmanager
def needs_sandbox() -> Iterator[None]:
    """End the command with words if this machine cannot run scripts."""
    from keep_actors.sandbox_pool import SandboxUnavailable
    from keep_sandbox import EngineUnsuitable, JailUnavailable

    try:
        yield
    except (SandboxUnavailable, JailUnavailable, EngineUnsuitable) as error:
        raise click.ClickException(str(error)) from None


def source_of(file: Path) -> str:
    """The text of a script."""
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is not a script: it is not UTF-8 text ({error.reason}).") from None
    except OSError as error:
        raise click.UsageError(f"{file} cannot be read: {error.strerror}.") from None
