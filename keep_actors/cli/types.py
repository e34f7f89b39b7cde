"""`keep types`: declarations that let an editor complete a script and `tsc` check it."""

from pathlib import Path

import click

from keep_actors.cli.given import connector_options, connectors_from
from keep_actors.cli.terminal import json_line, plain_lines, remark, show


@click.command()
@connector_options
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write, keep.d.ts say. The standard output unless it is said.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object with the `declarations`, instead of the text.")
def types(specs: tuple[str, ...], discovered: bool, out: Path | None, as_json: bool) -> None:
    """Write TypeScript declarations for scripts.

    They have `Keep`, events, results, what `ctx` offers phase by phase, and the methods of the connectors that are
    named. A script stays JavaScript; beside keep.d.ts an editor completes it, and tsc checks it.

    \b
    keep types --connectors examples.connectors:demo --out keep.d.ts
    npx tsc --noEmit --allowJs --checkJs --strict --target es2022 --module esnext \\
        --lib es2023 keep.d.ts script.js

    Exits with 0, and with 2 for a wrong use of this command.
    """
    from keep_actors.authoring.typescript import declarations
    from keep_actors.connectors import Catalog, ConnectorDefinitionError

    try:
        # In a comment or a quoted name: what is spelled out means the same to `tsc`.
        text = plain_lines(declarations(Catalog(connectors_from(specs, discovered))), None)
    except ConnectorDefinitionError as error:
        raise click.UsageError(str(error)) from None
    if out is None or as_json:
        show(json_line({"declarations": text}) if as_json else text.removesuffix("\n"))
    if out is None:
        return
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise click.UsageError(f"{out} cannot be written: {error.strerror}.") from None
    remark(f"{out}: {len(text.splitlines())} lines")
