"""The command `keep`. Its exit codes are in `exit_codes.py`.

A command imports what it needs when it is called: `keep --version` loads no runtime and no database.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

_MODULES = {
    "actions": "archive clear-error pause publish resume revoke run-now skip-event stop unarchive",
    "answers": "amend resolve",
    "approvals": "approve grant reject",
    "attention": "attention",
    "authoring": "check prompt types",
    "certify": "certify",
    "connectors": "connector connectors",
    "demo": "demo",
    "dry_run": "dry-run",
    "explain": "explain",
    "files": "backup doctor",
    "history": "inputs log outputs runs",
    "items": "items reprocess-item skip-item",
    "mcp": "mcp",
    "mcp_tools": "mcp-tools",
    "proposals": "accept-proposal proposals propose reject-proposal",
    "run": "run",
    "scripts": "deploy repair rollback",
    "status": "status",
}
"""The commands of each module, each under its own name, with _ for -."""
_HOME = {command: module for module, names in _MODULES.items() for command in names.split()}


class _Commands(click.Group):
    """Commands that are imported when they are asked for.

    Their errors are shown in plain text: names of files and words of strangers are in them.
    """

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        if args is None:
            # As a program, and not by a test: what Python itself would write goes through the one door too.
            from keep_actors.cli.terminal import speak_plainly

            speak_plainly()
        return super().main(args, *more, **options)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        with _plain_errors():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _plain_errors():
            return super().invoke(ctx)

    def list_commands(self, _: click.Context) -> list[str]:
        return sorted(_HOME)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in _HOME:
            return None
        command: click.Command = getattr(import_module(f"keep_actors.cli.{_HOME[name]}"), name.replace("-", "_"))
        return command


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Have click say what a command raises, with everything in it spelled out that a terminal would obey or hide."""
    try:
        yield
    except click.ClickException as error:
        from keep_actors.cli.terminal import plain_block

        words = plain_block(error.format_message())
        if words == error.format_message():
            raise
        said = click.ClickException(words)
        if isinstance(error, click.UsageError):
            said = click.UsageError(words, error.ctx)
        said.exit_code = error.exit_code  # type: ignore[misc]  # click reads it from the instance
        raise said from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="keep-actors", prog_name="keep")
def main() -> None:
    """Runs automations that never lose, repeat or guess a side effect.

    \b
    keep run FILE.js --db keep.db --connectors MODULE:NAME --accept
    keep status --db keep.db
    keep attention --db keep.db

    The database can also be named by the environment: export KEEP_DB=keep.db

    \b
    Exit codes: 0 success, 1 refused or a problem found, 2 wrong usage, 3 no runtime can
    be reached, 4 something waits for a person (attention), 5 the outcome is unknown.
    """
