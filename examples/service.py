"""keep-actors inside a web service: each call of a webhook becomes an event, and a workflow files it in a sheet.

Run it with `uvicorn examples.service:app`, then
`curl localhost:8000/events/order.paid -d '{"messageId": "o-1", "title": "Order o-1", "payload": {"total": 12}}'`.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import keep_actors
from examples.connectors import Sheets

SCRIPT = """
export default Keep.workflow({
  name: "orders",
  topics: { "order.paid": {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["order.paid"],
      async prepare(ctx) {
        const [order] = await ctx.peek("order.paid", { limit: 1 });
        const ids = order ? [order.messageId] : [];
        return { reservations: [{ topic: "order.paid", ids }], data: order, ui: { title: `File ${order?.title}` } };
      },
      async mutate(ctx, { data }) {
        await ctx.sheets.appendRow({ spreadsheetId: "orders", values: [data.messageId, `${data.payload.total}`] });
      },
    }),
  },
});
"""


class NewEvent(msgspec.Struct, rename="camel"):
    message_id: str
    title: str
    payload: Any = None


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[dict[str, Any]]:
    """Run the runtime as long as the service; at the end, active runs may finish."""
    async with keep_actors.open(os.environ.get("KEEP_DB", "orders.db"), connectors=[Sheets()]) as keep:
        await keep.deploy(SCRIPT, workflow="orders", grants="declared")
        yield {"keep": keep}  # `request.state.keep`


async def publish(request: Request) -> Response:
    event = msgspec.json.decode(await request.body(), type=NewEvent)
    fields = msgspec.structs.asdict(event)
    return _json(await request.state.keep.publish("orders", request.path_params["topic"], **fields))


async def inputs(request: Request) -> Response:
    return _json(await request.state.keep.inputs("orders"))


async def pause(request: Request) -> Response:
    return _json(await request.state.keep.pause("orders", by="the web"))


async def resume(request: Request) -> Response:
    return _json(await request.state.keep.resume("orders", by="the web"))


async def refused(_: Request, error: Exception) -> Response:
    return _json({"error": str(error)}, 409 if isinstance(error, keep_actors.Rejected) else 422)


def _json(answer: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/events/{topic}", publish, methods=["POST"]),
        Route("/inputs", inputs),
        Route("/pause", pause, methods=["POST"]),
        Route("/resume", resume, methods=["POST"]),
    ],
    exception_handlers={keep_actors.Rejected: refused, msgspec.MsgspecError: refused, ValueError: refused},
)
