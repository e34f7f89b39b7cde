"""Output that a page shows without the input that made it: made here again."""

from collections.abc import Callable
from pathlib import Path

import anyio
from click.testing import CliRunner

import keep_actors
from examples.connectors import demo
from keep_actors import Grant
from keep_actors.cli.main import main
from tests.docs.pages import ROOT

TWO_CALLS = """
export default Keep.workflow({
  name: "orders",
  topics: { "order.paid": {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["order.paid"],
      async prepare(ctx) {
        return { reservations: [] };
      },
      async mutate(ctx, prepared) {
        await ctx.sheets.appendRow({ spreadsheetId: "orders", values: [] });

        await ctx.gmail.send({ to: "me@example.com", subject: "Filed", body: "" });
      },
    }),
  },
});
""".lstrip("\n")

INVOICES = """
export default Keep.workflow({
  name: "invoices",
  topics: { "invoice.received": {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["invoice.received"],
      async prepare(ctx) {
        const [invoice] = await ctx.peek("invoice.received", { limit: 1 });
        if (!invoice) return { reservations: [] };
        return {
          reservations: [{ topic: "invoice.received", ids: [invoice.messageId] }],
          data: invoice.messageId,
          ui: { title: `Add "${invoice.payload}" to the sheet` },
        };
      },
      async mutate(ctx, { data }) {
        await ctx.sheets.appendRow({ spreadsheetId: "invoices", values: [data] });
      },
    }),
  },
});
"""


def _keep(*words: str) -> str:
    done = CliRunner().invoke(main, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.stdout


def _check(folder: Path) -> str:
    # The line of the second call is that of the page.
    (folder / "orders.js").write_text("\n" + TWO_CALLS, "utf-8")
    return _keep("check", "orders.js", "--connectors", "examples.connectors:demo")


def _dry_run(folder: Path) -> str:
    async def receive() -> None:
        async with keep_actors.open(folder / "keep.db", connectors=demo(), sandbox="thread") as keep:
            await keep.deploy(INVOICES, grants=[Grant("sheets.appendRow", policy="ask")], start=False)
            title = 'Mail from ann@example.com: "Invoice 7"'
            await keep.publish("invoices", "invoice.received", message_id="mail_1", title=title, payload="Invoice 7")

    anyio.run(receive)
    (folder / "invoices.js").write_text(INVOICES, "utf-8")
    return _keep("dry-run", "invoices.js", "--db", "keep.db", "--connectors", "examples.connectors:demo")


def _example(_: Path) -> None:
    """tests/test_house.py compares it with what the example prints."""
    assert "def test_the_example_tells_the_story_that_the_readme_tells" in (ROOT / "tests/test_house.py").read_text()


SHOWN: dict[tuple[str, str], Callable[[Path], str | None]] = {
    ("README.md", "Process 1 was killed"): _example,
    ("authoring.md", "orders.js:14:9: error"): _check,
    ("authoring.md", "file: Add "): _dry_run,
}
"""By the page and the beginning of the block. None: it is compared elsewhere."""
