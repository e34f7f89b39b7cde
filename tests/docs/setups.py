"""What a block of the documentation finds when it runs, by the comment before it: `<!-- setup: … -->`."""

import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from aiosmtpd.smtp import Envelope

import keep_actors
import keep_sandbox
import keep_storage
from keep_actors import sandbox_pool
from keep_actors.services.mcp.granted import save_tools
from tests.docs.pages import ROOT
from tests.services.chat import model as chat_model
from tests.services.http.orders import orders_desk
from tests.services.mcp import notes as mcp_notes
from tests.services.openapi import shop as openapi_shop
from tests.services.openapi.serving import served
from tests.services.servers.imap_in_python import pymap
from tests.services.servers.smtp import CUT, append, smtp_server


class Page:
    """One page on its way: the names that its blocks made, its folder, and what is to be undone."""

    def __init__(
        self, folder: Path, portal: anyio.from_thread.BlockingPortal, undo: ExitStack, patch: pytest.MonkeyPatch
    ) -> None:
        self.folder = folder
        self.portal = portal
        self.undo = undo
        self.patch = patch
        self.names: dict[str, Any] = {}

    def open(self, path: str, **how: Any) -> keep_actors.Keep:
        """A runtime in the page's event loop, until the page ends. Its scripts are ours: they run in threads."""
        opened = keep_actors.open(self.folder / path, sandbox="thread", **how)
        return self.undo.enter_context(self.portal.wrap_async_context_manager(opened))


def _orders(page: Page) -> None:
    """`SCRIPT` and `Outbox` of the first program of docs/runtime.md."""
    text = (ROOT / "docs" / "runtime.md").read_text("utf-8")
    program = text.partition("```python\n")[2].partition("```")[0]
    exec(program.replace("anyio.run(main)", ""), page.names)


def _keep(page: Page) -> None:
    """`keep`, on the file that the page's first program left."""
    page.names["keep"] = page.open("orders.db", connectors=[page.names["Outbox"]()])


def _storage(page: Page) -> None:
    page.names |= {name: getattr(keep_storage, name) for name in keep_storage.__all__}


SOURCE = """
export default Keep.workflow({ name: "files", topics: { in: {} }, consumers: { file: Keep.consumer({
  subscribe: ["in"],
  async prepare(ctx, state) {
    await ctx.peek("in");
    await ctx.gmail.search({});
    return { reservations: [], data: state };
  },
}) } });
"""


def _sandbox(page: Page) -> None:
    for module in (keep_sandbox, sandbox_pool):
        page.names |= {name: getattr(module, name) for name in module.__all__}
    page.names |= {"source": SOURCE, "workflow_id": "wf_1", "now": 1_700_000_000_000, "seed": 7, "result_json": "[]"}


def _used(page: Page) -> None:
    """`keep.db`, with a workflow in it, and a runtime at work on it."""
    _orders(page)
    keep = page.open("keep.db", connectors=[page.names["Outbox"]()])
    page.portal.call(lambda: keep.deploy(page.names["SCRIPT"], grants="declared"))
    page.portal.call(
        lambda: keep.publish("orders", "order.paid", message_id="o-1", title="Order 1", payload={"customer": "ann"})
    )
    page.portal.call(keep.wait_idle)


def _secret(page: Page) -> None:
    page.patch.setenv("KEEP_SECRET", "whsec_aHVzaC0wMTIzNDU2Nzg5YWJjZGVmMDEyMw==")


def _shop(page: Page) -> None:
    """A shop on FastAPI, with its document in the folder of the page."""
    app = openapi_shop.shop(page.folder / "orders.jsonl")
    openapi_shop.write_document(app, page.folder / "openapi.json")
    page.names |= {"PORT": page.undo.enter_context(served(app)), "SHOP_KEY": openapi_shop.API_KEY}
    page.patch.setenv("SHOP_KEY", openapi_shop.API_KEY)


def _model(page: Page) -> None:
    """An endpoint with a model that calls every mail an invoice."""
    model = chat_model.Model(otherwise='{"kind": "invoice"}')
    page.names |= {"PORT": page.undo.enter_context(served(model.app)), "MODEL_KEY": chat_model.API_KEY}


def _orders_service(page: Page) -> None:
    """A web service that stores orders, and can be asked for them."""
    page.names["PORT"] = page.undo.enter_context(orders_desk(keeps_keys=True)).port


def _mail(page: Page) -> None:
    """A provider that files copies of sent mails, and breaks the connection when it has taken one."""
    me, password = "office@example.com", "secret of the office"
    imap = page.undo.enter_context(pymap(me, password))

    def deliver(envelope: Envelope) -> None:
        assert isinstance(envelope.content, bytes), "mails are not decoded"
        append(imap, me, "Sent", envelope.content, password)

    smtp = page.undo.enter_context(smtp_server(deliver))
    smtp.faults["."], smtp.delivers_anyway = CUT, True
    page.names |= {"SMTP_PORT": smtp.address[1], "IMAP_PORT": imap[1], "MAIL_PASSWORD": password, "TAKEN": smtp.taken}


def _command(page: Page) -> None:
    page.patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def _at_work(page: Page) -> None:
    """The tools of the example with three workflows, and the password of its mailbox."""
    (page.folder / "tickets").mkdir()
    shutil.copy(ROOT / "examples" / "at_work" / "tickets.tools.json", page.folder / "tickets")
    page.patch.setenv("MAILBOX_PASSWORD", "secret")


def _tools(page: Page) -> None:
    """A server of notes, in the folder of the page."""
    _command(page)
    shutil.copy(mcp_notes.SCRIPT, page.folder / "notes_server.py")


def _accepted_tools(page: Page) -> None:
    save_tools(page.folder / "notes.tools.json", mcp_notes.tools())


SETUPS: dict[str, Callable[[Page], None]] = {
    "the command keep is found": _command,
    "the example at work": _at_work,
    "the orders of docs/runtime.md": _orders,
    "keep is open": _keep,
    "everything of keep_storage": _storage,
    "a sandbox and a script": _sandbox,
    "a file that is in use": _used,
    "a secret in the environment": _secret,
    "a shop with an OpenAPI document": _shop,
    "a language model": _model,
    "a program with tools": _tools,
    "accepted tools": _accepted_tools,
    "a mail server that loses its answer": _mail,
    "a web service that takes orders": _orders_service,
}

MODULES = {"testing.md": "docs_testing.py"}
"""Pages whose later blocks import the first one, as a module of this name."""

AS_PROGRAM = re.compile(r"^anyio\.run\((\w+)\)$", re.MULTILINE)
