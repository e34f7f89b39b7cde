"""One process of the same job on DBOS with its SQLite system database. `python -m bench.effects.dbos_life PLAN`.

Uses the documented defaults: one workflow, one step, an executor that recovers pending work at launch. A process that
will be killed starts the workflow; the other one only launches, waits for the workflow's end, and prints what it found.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec
from dbos import DBOS, DBOSConfig, SetWorkflowID, WorkflowHandle
from dbos._sys_db import SystemDatabase

from bench.effects.job import ANSWER, LATENCY_S, ORDER, Kill, Moment
from bench.outside import PaymentFile

STEP: Final = "pay"


class Plan(msgspec.Struct, frozen=True):
    """The options of the process."""

    folder: str
    publish: bool = False
    moment: Moment | None = None
    after_s: float | None = None


def registered(outside: PaymentFile, kill: Kill) -> Callable[[str], str]:
    """The job on DBOS. DBOS records nothing before a step, so that moment does not exist."""

    @DBOS.step(name=STEP)
    def pay(order: str) -> str:
        kill.call_begins()
        time.sleep(LATENCY_S)
        kill.reached(Moment.IN_CALL)
        assert DBOS.workflow_id, "a step runs in a workflow"
        outside.pay(order, DBOS.workflow_id)
        kill.reached(Moment.EFFECT)
        time.sleep(LATENCY_S)
        return ANSWER

    @DBOS.workflow(name="order_paid")
    def order_paid(order: str) -> str:
        kill.reached(Moment.BEFORE_RECORD)
        return pay(order)

    return order_paid


def recording(kill: Kill) -> Callable[..., None]:
    """DBOS's function that records the result of a step, with a moment before and one after."""
    record = SystemDatabase.record_operation_result

    def around(self: SystemDatabase, result: Any, **more: Any) -> None:
        is_ours = result["function_name"] == STEP
        if is_ours:
            kill.reached(Moment.ANSWERED)
        record(self, result, **more)
        if is_ours:
            kill.reached(Moment.AFTER_RECORD)

    return around


def live(plan: Plan) -> None:
    folder, kill = Path(plan.folder), Kill(plan.moment, plan.after_s)
    config: DBOSConfig = {
        "name": "orders",
        "system_database_url": f"sqlite:///{folder / 'dbos.sqlite'}",
        "log_level": "CRITICAL",
    }
    with patch.object(SystemDatabase, "record_operation_result", recording(kill)):
        DBOS(config=config)
        order_paid = registered(PaymentFile(folder / "outside.txt"), kill)
        DBOS.launch()
        if plan.publish:
            with SetWorkflowID(ORDER):
                DBOS.start_workflow(order_paid, ORDER)
        handle: WorkflowHandle[str] = DBOS.retrieve_workflow(ORDER)
        handle.get_result()
        print(json.dumps({"status": handle.get_status().status}), flush=True)
        DBOS.destroy()


if __name__ == "__main__":
    live(msgspec.json.decode(sys.argv[1], type=Plan))
