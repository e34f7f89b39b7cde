"""`keep mcp`: a server for an assistant, which looks, checks, dry-runs and proposes. A person decides."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.inputs import ChosenConnectors, connector_options, sandbox_option
from keep_actors.cli.options import control_option, db_option

if TYPE_CHECKING:
    from keep_actors.sandbox_pool.pool import PoolMode


@click.command()
@db_option
@connector_options
@click.option(
    "--reads/--no-reads",
    "call_reads",
    default=False,
    help="Let dry runs make real reads, with the grants of the workflow.  [default: no reads]",
)
@click.option(
    "--name", default="assistant", show_default=True, help="The name under which proposals are made, for the person."
)
@control_option
@sandbox_option
def mcp(
    db: Path, chosen: ChosenConnectors, call_reads: bool, name: str, control: Path | None, sandbox: "PoolMode"
) -> None:
    """Serve an assistant over the Model Context Protocol, on the standard input and output.

    The assistant can look at workflows, inputs, outputs, runs, items, the journal and all that waits for a person; get
    the prompt and the types for writing a script; check a script, dry-run it, and propose it. A proposal is held until
    a person accepts or rejects it (`keep proposals`). There is no tool that approves, resolves, grants, deploys,
    publishes or pauses.

    Works with a running runtime and without: a proposal is then written into the file. Words of scripts, events and
    services are marked as data, and secrets of the connectors are taken out.

    \b
    keep mcp --db keep.db --config keep.toml
    keep mcp --db keep.db --config keep.toml --name "ann's assistant"
    """
    from keep_actors.cli.proposing import problem_with

    if why := problem_with(name):
        raise click.UsageError(f"--name {name!a} {why}.")
    if not db.is_file():
        raise Stopped(Exit.WRONG, f"{db}: there is no such file.")
    try:
        from keep_actors.cli.assistant.server import serve
    except ModuleNotFoundError as error:
        words = f"`keep mcp` needs a package that is not installed ({error.name}): pip install 'keep-actors[mcp]'"
        raise click.UsageError(words) from None
    import anyio

    from keep_actors.cli.assistant.desk import Desk
    from keep_actors.connectors import ConnectorDefinitionError

    try:
        desk = Desk(db, chosen.load(), name=name, control=control, sandbox=sandbox, call_reads=call_reads)
    except ConnectorDefinitionError as error:
        raise click.UsageError(str(error)) from None
    anyio.run(serve, desk)
