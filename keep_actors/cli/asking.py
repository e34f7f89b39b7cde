"""A question before a change to many things: asked on a terminal, answered by `--yes` anywhere else."""

import sys

import click

from keep_actors.cli.terminal import plain

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, yes: bool) -> None:
    """Go on only if a person wants it. Raises `click.Abort`, or `click.UsageError` where nobody can be asked."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{plain(question)} There is no terminal to ask: say --yes.")
    click.confirm(plain(question), abort=True, err=True)
