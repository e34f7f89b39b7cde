"""The cycle that is measured: one consumer run from its start to its commit, as five operations.

One workflow per caller, because a workflow has at most one active run. Its consumer reads the topic it publishes
to: the commit of one cycle publishes what the next one reserves, so a run of any length needs no stock of events.
"""

from typing import Any, Final, NamedTuple

from bench.history import PAYLOAD
from keep_storage import Ids, Operation, Together
from keep_storage import operations as ops
from keep_storage.model import HandlerKind, Phase

OPERATIONS_PER_CYCLE: Final = 5

TOPIC: Final = "orders"
HANDLER: Final = "file_order"


class Caller(NamedTuple):
    """One workflow with an open session, and its driver."""

    workflow_id: str
    session_id: str


def new_callers(count: int, ids: Ids) -> list[Caller]:
    return [Caller(ids.new("wf"), ids.new("ses")) for _ in range(count)]


def deploy(caller: Caller, ids: Ids) -> list[Operation[Any]]:
    """The operations before the first cycle of a workflow, which finds one event to reserve."""
    version_id = ids.new("ver")
    return [
        ops.CreateWorkflow(caller.workflow_id, "Orders to rows"),
        ops.AddScriptVersion(version_id, caller.workflow_id, 1, 0, "export default Keep.workflow({})"),
        ops.ActivateScript(version_id, (TOPIC,), (ops.HandlerSpec(HANDLER, HandlerKind.CONSUMER, (TOPIC,)),)),
        ops.ResumeWorkflow(caller.workflow_id),
        ops.CreateSession(caller.session_id, caller.workflow_id, "benchmark"),
        ops.PublishEvents(caller.workflow_id, (publish(0, ids),)),
    ]


def cycle(caller: Caller, number: int, ids: Ids) -> tuple[Operation[Any], ...]:
    """The operations of one cycle, in order. A caller waits for each before it sends the next."""
    run_id, mutation_id = ids.new("run"), ids.new("mut")
    return (
        ops.CreateRun(run_id, caller.session_id, HANDLER, Phase.PREPARING),
        ops.UpdateConsumerPhase(
            run_id,
            Phase.PREPARED,
            reservations=(ops.Reserve(TOPIC, (f"order-{number}",)),),
            prepare_result='{"data":{"row":48213}}',
            title="File the order",
        ),
        Together(
            (
                ops.UpdateConsumerPhase(run_id, Phase.MUTATING),
                ops.CreateMutation(mutation_id, run_id, "sheets", "append", PAYLOAD, mutation_id, True, send=True),
            )
        ),
        ops.ApplyMutation(mutation_id, '{"rowId":48213}'),
        Together(
            (
                ops.UpdateConsumerPhase(run_id, Phase.EMITTING),
                ops.CommitConsumer(run_id, (publish(number + 1, ids),), state='{"filed":48213}'),
            )
        ),
    )


def publish(number: int, ids: Ids) -> ops.Publish:
    return ops.Publish(ids.new("evt"), TOPIC, f"order-{number}", f"Order {number}", PAYLOAD)
