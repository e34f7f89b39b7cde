"""A runtime inside a service: the example with a real server, and on both backends; always in the jailed sandbox."""

import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

import keep_actors
from examples.connectors import Sheets
from examples.service import SCRIPT, app
from keep_actors import Keep, Reason, Rejected
from keep_actors.connectors import ConnectorNotOpened
from keep_actors.kernel import ActorStopped
from keep_storage import StorageOwned, Store, reads
from tests.runtime.fakes import Fake

ROOT = Path(__file__).parents[2]


def order(number: int) -> dict[str, Any]:
    return {"messageId": f"o-{number}", "title": f"Order o-{number}", "payload": {"total": 12}}


# Under uvicorn, in a process of its own.


@contextmanager
def served(db: Path) -> Iterator[tuple[httpx.Client, "subprocess.Popen[str]"]]:
    """The example, on a socket that the test has opened: nobody else can have its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "examples.service:app", "--fd", str(listener.fileno())],
            cwd=ROOT,
            env={"KEEP_DB": str(db)},
            pass_fds=[listener.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    # A request waits in the socket's queue until the service is there.
    with server, httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        try:
            yield client, server
        finally:
            server.kill()


def ended(server: "subprocess.Popen[str]") -> str:
    """End it as an operator would, and return what it said."""
    server.send_signal(signal.SIGTERM)
    assert server.stderr is not None
    return server.stderr.read()


def test_a_service_takes_events_and_ends_in_order_and_the_next_one_goes_on(tmp_path: Path) -> None:
    db = tmp_path / "orders.db"
    with served(db) as (client, server):
        for number in range(5):
            assert client.post("/events/order.paid", json=order(number)).status_code == 200
        said = ended(server)
    assert "Application shutdown complete" in said
    assert "Traceback" not in said
    with Store.open(db) as store:
        workflow = reads.workflow_by_name(store.queries(), "orders")
        assert workflow is not None
        events = reads.events(store.queries(), workflow.id, "order.paid")
        assert len(events) == 5
        assert {event.status for event in events} <= {"pending", "consumed"}, "no run was cut off"
    with served(db) as (client, server):
        assert [each["title"] for each in client.get("/inputs").json()] == [f"Order o-{n}" for n in (4, 3, 2, 1, 0)]
        assert "Traceback" not in ended(server)


def test_what_is_refused_is_an_answer_and_not_an_error_of_the_server(tmp_path: Path) -> None:
    with served(tmp_path / "orders.db") as (client, server):
        unknown = client.post("/events/order.lost", json=order(1))
        assert unknown.status_code == 409
        assert "which the script does not declare" in unknown.json()["error"]
        nonsense = client.post("/events/order.paid", json={"title": "no id"})
        assert nonsense.status_code == 422
        assert "messageId" in nonsense.json()["error"]
        assert [client.post("/pause").status_code for _ in range(2)] == [200, 409]
        assert client.post("/resume").json()["status"] == "active"
        assert "Traceback" not in ended(server)


# In the loop of the test, on asyncio and on trio.


@asynccontextmanager
async def client_of_the_example(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[httpx.AsyncClient, Keep]]:
    monkeypatch.setenv("KEEP_DB", str(db))
    async with app.router.lifespan_context(app) as state:
        assert state is not None

        async def with_state(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "state": dict(state)}, receive, send)

        transport = httpx.ASGITransport(with_state)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", trust_env=False) as client:
            yield client, state["keep"]


@pytest.mark.anyio
async def test_an_event_from_the_web_is_filed_and_can_be_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of_the_example(tmp_path / "orders.db", monkeypatch) as (client, keep):
        await client.post("/events/order.paid", json=order(1))
        await keep.wait_idle()
        [came_in] = (await client.get("/inputs")).json()
        [filed] = came_in["outputs"]
        assert (came_in["status"], filed["title"], filed["status"]) == ("consumed", "File Order o-1", "applied")
        assert filed["params"] == '{"spreadsheetId":"orders","values":["o-1","12"]}'


@pytest.mark.anyio
async def test_while_it_is_paused_events_are_kept_and_afterwards_they_are_filed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of_the_example(tmp_path / "orders.db", monkeypatch) as (client, keep):
        await client.post("/pause")
        await client.post("/events/order.paid", json=order(1))
        await keep.wait_idle()
        assert [each["status"] for each in (await client.get("/inputs")).json()] == ["pending"]
        await client.post("/resume")
        await keep.wait_idle()
        assert [each["status"] for each in (await client.get("/inputs")).json()] == ["consumed"]


@pytest.mark.anyio
async def test_a_runtime_that_is_opened_again_goes_on_with_what_is_in_the_file(tmp_path: Path) -> None:
    db, sheets = tmp_path / "orders.db", Sheets()
    async with keep_actors.open(db, connectors=[sheets]) as keep:
        await keep.deploy(SCRIPT, grants="declared")
        await keep.pause("orders")
        await keep.publish("orders", "order.paid", message_id="o-1", title="Order o-1", payload={"total": 12})
    assert sheets.rows_of("orders") == []
    async with keep_actors.open(db, connectors=[sheets]) as keep:
        await keep.resume("orders")
        await keep.wait_idle()
    assert sheets.rows_of("orders") == [["o-1", "12"]]


@pytest.mark.anyio
async def test_a_file_has_one_runtime_and_the_other_is_told_so(tmp_path: Path) -> None:
    async with keep_actors.open(tmp_path / "orders.db"):
        with pytest.raises(StorageOwned, match="open in another runtime"):
            async with keep_actors.open(tmp_path / "orders.db"):
                pass


@pytest.mark.anyio
async def test_what_the_service_raises_inside_the_block_leaves_it_as_it_came(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with keep_actors.open(tmp_path / "orders.db"):
            raise LookupError("mine")
    async with keep_actors.open(tmp_path / "orders.db") as keep:
        with pytest.raises(Rejected) as refused:
            await keep.pause("nobody")
    assert refused.value.reason is Reason.WORKFLOW_NOT_FOUND


@pytest.mark.anyio
async def test_a_runtime_that_has_ended_says_so(tmp_path: Path) -> None:
    async with keep_actors.open(tmp_path / "orders.db") as keep:
        pass
    with pytest.raises(ActorStopped):
        await keep.workflows()


@pytest.mark.anyio
async def test_a_connector_that_cannot_be_opened_is_named() -> None:
    class Broken(Fake):
        async def open(self) -> None:
            raise FileNotFoundError("no credentials at /etc/fake")

    words = "'fake' could not be opened: FileNotFoundError: no credentials"
    with pytest.raises(ConnectorNotOpened, match=words) as raised:
        async with keep_actors.open(":memory:", connectors=[Broken()], sandbox="thread"):
            pass
    assert isinstance(raised.value.__cause__, FileNotFoundError)
