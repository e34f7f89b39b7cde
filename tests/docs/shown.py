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


def _elsewhere(test: str, words: str) -> Callable[[Path], None]:
    """Compared by a test elsewhere, which says `words`."""

    def look(_: Path) -> None:
        assert words in (ROOT / "tests" / test).read_text("utf-8"), f"tests/{test} says nothing of {words!r}"

    return look


SHOWN: dict[tuple[str, str], Callable[[Path], str | None]] = {
    ("README.md", "Process 1 was killed"): _elsewhere("test_house.py", "Process 1 was"),
    ("README.md", "What happened, on both sides"): _elsewhere("cli/test_demo.py", "What happened, on both sides"),
    ("README.md", "mail → database"): _elsewhere("examples/test_at_work.py", "the README shows what it says"),
    ("authoring.md", "orders.js:14:9: error"): _check,
    ("authoring.md", "file: Add "): _dry_run,
    ("testing.md", "number  time in seconds"): lambda _: None,  # the shape of a line; there is no seed that fails
}
"""By the page and the beginning of the block. None: it is not made here."""
