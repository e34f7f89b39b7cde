"""One life of a runtime that will be killed, or that recovers what another life has left behind.

It runs in a process of its own, which `nursery` has forked. It says what it found, and ends; or it dies before.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

import keep_actors
from keep_actors import Backoff, Keep, Policy
from keep_actors.connectors import Connector
from keep_actors.host.fault_points import Point
from keep_actors.testing.certification.subject import Certification, RunningService
from keep_storage.model import EventStatus, MutationStatus

WORKFLOW: Final = "certified"
TOPIC: Final = "wanted"
PATIENCE_S: Final = 15
START_S: Final = 30
"""For the beginning and the end of a life."""
_LOOK_S: Final = 0.01
_WAITS: Final = Backoff(first_ms=10, cap_ms=50, attempts_max=None)
_CHECKS: Final = Backoff(first_ms=20, cap_ms=100, attempts_max=40)

SCRIPT: Final = """
export default Keep.workflow({{
  name: "{workflow}",
  topics: {{ "{topic}": {{}} }},
  consumers: {{
    call: Keep.consumer({{
      subscribe: ["{topic}"],
      async prepare(ctx) {{
        const [event] = await ctx.peek("{topic}", {{ limit: 1 }});
        if (!event) return {{ reservations: [] }};
        return {{ reservations: [{{ topic: "{topic}", ids: [event.messageId] }}], data: event.payload }};
      }},
      async mutate(ctx, prepared) {{ await ctx.{method}(prepared.data); }},
    }}),
  }},
}});
"""


class LifePlan(msgspec.Struct, frozen=True):
    """All that a life needs. It is JSON."""

    subject: str
    """`module:name` of a certification."""
    service: RunningService
    method: str
    """The mutation, by its name in JavaScript."""
    params: msgspec.Raw
    folder: str
    timeout_ms: int
    backend: str
    begins: bool
    """It deploys the workflow and publishes the event. False: it recovers."""
    patience_s: int = PATIENCE_S
    kill_at: Point | None = None
    kill_after_ms: int = 0


class LifeReport(msgspec.Struct, frozen=True):
    """The words of a life that came to its end."""

    event: EventStatus | None
    questions: int
    """Calls of unknown outcome that wait for a person."""
    calls: list[MutationStatus]
    error: str
    is_at_rest: bool
    """False: its patience was over before it had nothing left to do."""


def subject_of(spec: str) -> Certification:
    """Make the certification of `module:name`."""
    module, _, name = spec.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    made = found()
    assert isinstance(made, Certification), "its own process has checked it"
    return made


def live(plan: LifePlan) -> LifeReport:
    """Live, and say what was found in the end."""
    logging.disable(logging.CRITICAL)  # interrupted runs and unknown outcomes are expected here
    if hasattr(signal, "alarm"):
        signal.alarm(plan.patience_s + START_S)
    return anyio.run(_live, plan, backend=plan.backend)


async def _live(plan: LifePlan) -> LifeReport:
    connector = subject_of(plan.subject).connector(plan.service)
    async with keep_actors.open(
        Path(plan.folder) / "keep.db",
        connectors=[connector],
        policy=_policy(connector, plan),
        sandbox="thread",  # the script is ours
        faults=_killer(plan),
    ) as keep:
        if plan.begins:
            script = SCRIPT.format(workflow=WORKFLOW, topic=TOPIC, method=f"{connector.name}.{plan.method}")
            await keep.deploy(script, grants="all")
            payload = msgspec.json.decode(plan.params)
            await keep.publish(WORKFLOW, TOPIC, message_id="1", title="one", payload=payload)
        return await _told(keep, is_at_rest=await _rest(keep, plan.patience_s))


def _policy(connector: Connector, plan: LifePlan) -> Policy:
    full_name = f"{connector.name}.{plan.method}"
    return Policy(
        retry=_WAITS,
        reconcile=_CHECKS,
        timeouts={full_name: plan.timeout_ms},
        read_timeout_ms=plan.timeout_ms,
    )


def _killer(plan: LifePlan) -> Callable[[Point, str], None]:
    def reach(point: Point, _: str) -> None:
        if point is not plan.kill_at:
            return
        if not plan.kill_after_ms:
            _die()
        timer = threading.Timer(plan.kill_after_ms / 1000, _die)
        timer.daemon = True
        timer.start()

    return reach


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _rest(keep: Keep, patience_s: int) -> bool:
    """Wait until nothing is left to do, including checks and retries that are due soon. False: that took too long."""
    with anyio.move_on_after(patience_s):
        while True:
            await keep.wait_idle()
            workflows = await keep.workflows()
            if not workflows:
                return True  # it was killed before anything was deployed
            events = await keep.events(WORKFLOW, TOPIC)
            is_asking = any(each.status is MutationStatus.NEEDS_RECONCILE for each in await keep.unknowns())
            is_over = workflows[0].error or all(event.status is EventStatus.CONSUMED for event in events)
            if is_over and not is_asking:
                return True
            await anyio.sleep(_LOOK_S)
    return False


async def _told(keep: Keep, *, is_at_rest: bool) -> LifeReport:
    workflows = await keep.workflows()
    if not workflows:
        return LifeReport(None, 0, [], "nothing was deployed", is_at_rest)
    events = await keep.events(WORKFLOW, TOPIC)
    return LifeReport(
        event=events[0].status if events else None,
        questions=len(await keep.unknowns()),
        calls=[each.status for each in await keep.outputs(WORKFLOW)],
        error=str(workflows[0].error or ""),
        is_at_rest=is_at_rest,
    )
