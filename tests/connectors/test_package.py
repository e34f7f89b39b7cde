"""The documentation runs, the examples work with the sandbox, and the rule about exceptions holds."""

import ast
import re
import runpy
from pathlib import Path

import pytest

from examples.connectors import Gmail, Sheets
from keep_actors import connectors
from keep_actors.connectors import Answer, Applied, Catalog, Happened, NotApplied, load
from keep_actors.sandbox_pool import SandboxPool
from keep_sandbox.invocation import Capabilities, Invocation
from keep_sandbox.outcomes import IssuedMutation, Request
from tests.connectors.world import mutation_call, nothing, read_call

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "keep_actors" / "connectors"
LONG = 60_000


def test_the_documentation_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "connectors.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) > 1
    (tmp_path / "documented.py").write_text("\n".join(blocks), "utf-8")
    runpy.run_path(str(tmp_path / "documented.py"))


def test_the_documentation_has_every_public_name() -> None:
    text = (ROOT / "docs" / "connectors.md").read_text("utf-8")
    assert {name for name in connectors.__all__ if name not in text} == set()


def test_every_exception_is_caught_in_one_place_only() -> None:
    broad = [
        path.name
        for path in PACKAGE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    ]
    assert broad == []


SCRIPT = """
export default Keep.workflow({
  name: "File mails",
  topics: { mail: {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["mail"],
      prepare: async (ctx) => {
        const mails = await ctx.gmail.search({ query: "invoice" });
        return { reservations: [], data: mails.map((mail) => mail.from) };
      },
      mutate: async (ctx, prepared) => {
        await ctx.sheets.appendRow({ spreadsheetId: "s1", values: prepared.data });
      },
    }),
  },
});
"""


def invocation(handler: str, args: str, catalog: Catalog) -> Invocation:
    offered = Capabilities(connectors=catalog.capabilities())
    return Invocation(source=SCRIPT, handler=handler, args=args, capabilities=offered, now_ms=0, seed=1)


@pytest.mark.anyio
async def test_a_script_reads_the_example_mailbox_and_writes_into_the_example_spreadsheet() -> None:
    gmail, sheets = Gmail(), Sheets()
    gmail.receive("ann@example.com", "Invoice 7")
    gmail.receive("bob@example.com", "Hello")
    catalog = Catalog([gmail, sheets])
    async with SandboxPool.open(mode="thread") as pool:
        async with pool.invoke("wf_1", invocation("consumers.file.prepare", "[{}]", catalog)) as prepare:
            asked = await prepare.next()
            assert isinstance(asked, Request)
            search = catalog.methods[asked.name]
            answer = await search.read(search.decode_params(asked.params), read_call(), LONG)
            assert isinstance(answer, Answer)
            await prepare.answer(asked.id, answer.json_text)
            await prepare.next()
        args = '[{"data": ["ann@example.com"]}]'
        async with pool.invoke("wf_1", invocation("consumers.file.mutate", args, catalog)) as mutate:
            asked = await mutate.next()
    assert answer.json_text == '[{"id":"mail_1","from":"ann@example.com","subject":"Invoice 7","body":""}]'
    assert isinstance(asked, IssuedMutation)
    append = catalog.methods[asked.name]
    params = append.decode_params(asked.params)
    call = mutation_call(params)
    assert await append.reconcile(call, LONG) == NotApplied()
    assert await append.mutate(params, call, LONG) == Happened('{"rowId":"row_1"}')
    assert await append.reconcile(call, LONG) == Applied('{"rowId":"row_1"}')
    assert sheets.rows_of("s1") == [["ann@example.com"]]


@pytest.mark.anyio
async def test_the_example_mailbox_finds_what_it_sent_by_its_key() -> None:
    gmail = Gmail()
    send = Catalog([gmail]).methods["gmail.send"]
    params = send.decode_params('{"to": "ann@example.com", "subject": "Hi", "body": "How are you?"}')
    assert await send.reconcile(mutation_call(params, "key_1"), LONG) == NotApplied()
    assert await send.mutate(params, mutation_call(params, "key_1"), LONG) == Happened('{"messageId":"sent_1"}')
    assert await send.reconcile(mutation_call(params, "key_1"), LONG) == Applied('{"messageId":"sent_1"}')
    assert await send.reconcile(mutation_call(params, "key_2"), LONG) == NotApplied()
    assert [(mail.to, mail.subject) for mail in gmail.sent] == [("ann@example.com", "Hi")]


def test_the_example_can_be_named_on_a_command_line() -> None:
    assert [connector.name for connector in load("examples.connectors:demo")] == ["gmail", "sheets"]


@pytest.mark.anyio
async def test_the_example_mailbox_goes_on_after_a_mail() -> None:
    gmail = Gmail()
    for subject in ("one", "two", "three"):
        gmail.receive("ann@example.com", subject)
    assert [mail.subject for mail in await gmail.search(after="mail_2")] == ["three"]
    search = Catalog([gmail]).methods["gmail.search"]
    assert isinstance(await search.read(nothing(search), read_call(), LONG), Answer)
