"""Inputs of the commands for authors: scripts and connectors."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from keep_actors.connectors import Connector

sandbox_option = click.option(
    "--sandbox",
    type=click.Choice(["jailed", "wasm", "thread"]),
    default="jailed",
    show_default=True,
    help="Only `jailed` is for scripts that are not trusted.",
)


class ChosenConnectors(NamedTuple):
    """The connectors that a command was told to use, not loaded yet. False if there are none."""

    specs: tuple[str, ...]
    discovered: bool
    configurations: tuple[Path, ...]

    def __bool__(self) -> bool:
        return bool(self.specs or self.discovered or self.configurations)

    def load(self) -> "list[Connector]":
        """Load them. One that cannot be loaded is a wrong use of the command."""
        from keep_actors.connectors import ConnectorDefinitionError, ConnectorLoadError, discover, load
        from keep_actors.services import ConfigurationError, load_configuration

        try:
            installed = discover() if self.discovered else []
            if self.specs or self.configurations:
                import_from_here_last()
            configured = [each for path in self.configurations for each in load_configuration(path)]
            return [each for spec in self.specs for each in load(spec)] + configured + installed
        except (ConnectorLoadError, ConnectorDefinitionError, ConfigurationError) as error:
            raise click.UsageError(str(error)) from None


def connector_options(command: Callable[..., Any]) -> Callable[..., None]:
    """`--connectors`, `--config` and `--discover`, which arrive as one `ChosenConnectors`, `chosen`."""

    @wraps(command)
    def chosen(*, specs: tuple[str, ...], discovered: bool, configurations: tuple[Path, ...], **typed: Any) -> None:
        command(chosen=ChosenConnectors(specs, discovered, configurations), **typed)

    named = click.option(
        "--connectors",
        "specs",
        multiple=True,
        metavar="MODULE:NAME",
        help="A connector, a class, a factory or a list of them, installed or in this folder. Can be repeated.",
    )
    configured = click.option(
        "--config",
        "configurations",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        envvar="KEEP_CONFIG",
        show_envvar=True,
        metavar="KEEP.TOML",
        help="A file that names connectors with their settings. Can be repeated.",
    )
    installed = click.option(
        "--discover", "discovered", is_flag=True, help="Also use every connector that is installed."
    )
    return named(configured(installed(chosen)))


def script_file(**more: Any) -> Any:
    """The type of an argument that names a script."""
    return click.Path(exists=True, dir_okay=False, path_type=Path, **more)


def import_from_here_last() -> None:
    """Let a name be one of a module of the current folder. Behind everything that is installed: an `asyncio.py`
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
