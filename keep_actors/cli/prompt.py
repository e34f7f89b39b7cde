"""`keep prompt`: all that a language model has to know to write a script."""

import click

from keep_actors.cli.given import connector_options, connectors_from
from keep_actors.cli.terminal import json_line, show


@click.command()
@connector_options
@click.option("--task", default="", metavar="TEXT", help="What the script is to do. It comes last.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object with the `prompt`, instead of the text.")
def prompt(specs: tuple[str, ...], discovered: bool, task: str, as_json: bool) -> None:
    """Write the prompt for a model that is to write a script.

    It has the whole contract (structure, phases, what each may use, events, limits, common mistakes), a complete
    example, and the methods of the connectors that are named, with their types.

    \b
    keep prompt --connectors examples.connectors:demo --task "File every invoice in a sheet" | your-model > script.js
    keep check script.js --connectors examples.connectors:demo

    Exits with 0, and with 2 for a wrong use of this command.
    """
    from keep_actors.authoring.writing import writing_prompt
    from keep_actors.connectors import Catalog, ConnectorDefinitionError

    try:
        text = writing_prompt(Catalog(connectors_from(specs, discovered)), task=task)
    except ConnectorDefinitionError as error:
        raise click.UsageError(str(error)) from None
    show(json_line({"prompt": text}) if as_json else text.removesuffix("\n"))
