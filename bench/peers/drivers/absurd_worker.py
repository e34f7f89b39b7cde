"""A worker of Absurd: `python -m bench.peers.drivers.absurd_worker PLAN URL NUMBER`."""

import logging
import sys
from typing import Final

from absurd_sdk import Absurd, TaskContext

from bench.peers import unit
from bench.peers.drivers.absurd_driver import QUEUE, TASK
from bench.peers.unit import ANSWER, PATIENCE_S, Plan, Task

POLL_S: Final = 0.01
CLAIM_S: Final = 120
"""The default: a worker that holds a task for so long without a step is believed to be gone."""


def work(plan: Plan, url: str, number: int) -> None:
    outside = plan.outside
    app = Absurd(url, queue_name=QUEUE)

    @app.register_task(TASK)
    def order_paid(params: dict[str, str], ctx: TaskContext) -> dict[str, str]:
        prepared: dict[str, str] = ctx.step("prepare", lambda: unit.prepare(params["order"]))

        def pay() -> str:
            outside.pay(prepared["order"], ctx.task_id)
            return ANSWER

        answer: str = ctx.step("pay", pay)
        noted: dict[str, str] = ctx.step("note", lambda: unit.note(answer))
        return noted

    app.start_worker(
        worker_id=f"worker-{number}",
        claim_timeout=CLAIM_S if plan.task is Task.MEASURE else PATIENCE_S,
        concurrency=1,  # tasks of one worker share its connection
        poll_interval=POLL_S,
    )


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    work(Plan.parse(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
