"""The service that Restate calls for each unit: `python -m bench.peers.drivers.restate_service PLAN PORT`."""

import asyncio
import logging
import sys

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from bench.peers import unit
from bench.peers.unit import ANSWER, Plan


async def main(plan: Plan, port: int) -> None:
    outside = plan.outside
    service = restate.Service("Orders")

    @service.handler()
    async def paid(ctx: restate.Context, order: str) -> dict[str, str]:
        prepared = await ctx.run_typed("prepare", unit.prepare, order=order)

        def pay() -> str:
            outside.pay(prepared["order"], ctx.request().id)
            return ANSWER

        answer = await ctx.run_typed("pay", pay)
        noted: dict[str, str] = await ctx.run_typed("note", unit.note, answer=answer)
        return noted

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.accesslog = config.errorlog = None
    await serve(restate.app([service]), config)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(Plan.parse(sys.argv[1]), int(sys.argv[2])))
