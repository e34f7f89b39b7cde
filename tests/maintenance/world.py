"""A script with one handler of each kind, a task about it, and a server that speaks the chat API and obeys a plan."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream

from examples.connectors import Gmail, Sheets
from keep_actors.connectors import Catalog
from keep_actors.maintenance import MethodInfo, RepairTask

METHODS: Final = Catalog([Gmail(), Sheets()]).methods
GRANTED: Final = ("gmail.search", "sheets.appendRow")

SCRIPT: Final = """\
export default Keep.workflow({
  name: "mail to sheet",
  topics: { mail: {}, row: {}, spare: {} },
  producers: {
    poll: {
      schedule: { interval: "5m" },
      publishes: ["mail"],
      async handler(ctx, state) {
        for (const mail of await ctx.gmail.search({ query: "invoice" })) {
          await ctx.publish("mail", { messageId: mail.id, title: mail.subject, payload: mail });
        }
      },
    },
  },
  consumers: {
    file: Keep.consumer({
      subscribe: ["mail"],
      publishes: ["row"],
      async prepare(ctx) {
        const [mail] = await ctx.peek("mail");
        return { reservations: [{ topic: "mail", ids: [mail.messageId] }], data: mail.payload };
      },
      async mutate(ctx, prepared) {
        await ctx.sheets.appendRow({ spreadsheetId: "s1", values: [prepared.data.from] });
      },
      async next(ctx, prepared) {
        await ctx.publish("row", { messageId: prepared.data.id, title: "a row", payload: {} });
      },
    }),
  },
  jobs: {
    digest: {
      schedule: { cron: "0 9 * * 1" },
      async handler(ctx) {
        await ctx.publish("spare", { messageId: "1", title: "a digest", payload: {} });
      },
    },
  },
});
"""

REPAIRED: Final = SCRIPT.replace(
    "return { reservations: [{", "if (!mail) return { reservations: [], data: {} };\n        return { reservations: [{"
)
assert REPAIRED != SCRIPT, "the repair is one"


def a_task(**changes: Any) -> RepairTask:
    task = RepairTask(
        workflow_id="wf_1",
        workflow_name="mail to sheet",
        version="1.3",
        source=SCRIPT,
        handler="file",
        error="consumers.file.prepare: TypeError: cannot read property 'messageId' of undefined",
        place="21:67",
        logs=["looking for mail"],
        requests=['peek {"topic":"mail"}'],
        prepare_result=None,
        attempt=1,
        attempts_max=3,
        earlier_problems=[],
        methods=[MethodInfo.of(METHODS[name]) for name in GRANTED],
        topics=["mail", "row", "spare"],
    )
    return msgspec.structs.replace(task, **changes)


class Asked(msgspec.Struct):
    """A request that the server got."""

    line: str
    headers: dict[str, str]
    body: bytes


Plan = Callable[[SocketStream], Awaitable[None]]


class Server:
    """Where it listens, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[Asked] = []


@asynccontextmanager
async def a_server(plan: Plan) -> AsyncIterator[Server]:
    """Reads each request whole, then does what the plan does to the connection."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    server = Server(f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/v1")

    async def serve(stream: SocketStream) -> None:
        async with stream:
            server.asked.append(await _request(stream))
            try:
                await plan(stream)
                await stream.send_eof()
            except (anyio.BrokenResourceError, OSError):
                pass  # the client has had enough

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield server
        tasks.cancel_scope.cancel()


async def _request(stream: SocketStream) -> Asked:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
    while len(body) < int(headers["content-length"]):
        body += await stream.receive()
    return Asked(line, headers, body)


def sends(data: bytes) -> Plan:
    """These bytes, as they are."""

    async def plan(stream: SocketStream) -> None:
        await stream.send(data)

    return plan


def answers(status: int, body: bytes, *headers: str) -> Plan:
    """A proper HTTP response."""
    head = [f"HTTP/1.1 {status} Words", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return sends("\r\n".join([*head, "", ""]).encode() + body)


def completes(content: object, finish_reason: str = "stop") -> Plan:
    """A chat completion with this content."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return answers(200, msgspec.json.encode({"id": "c1", "object": "chat.completion", "choices": [choice]}))


def an_answer(source: str = REPAIRED, *, before: str = "There was no mail.\nimpact: safe\n\n", after: str = "") -> str:
    return f"{before}```js\n{source}```\n{after}"
