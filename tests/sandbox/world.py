"""Shared by the tests of the sandbox: scripts, a host that answers them, and attacks with their expected outcomes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from keep_actors.sandbox_pool import Call, SandboxPool
from keep_sandbox import (
    CallLimit,
    Capabilities,
    CpuLimit,
    Deadlock,
    EngineCrash,
    InvalidValue,
    Invocation,
    IssuedMutation,
    Limits,
    MemoryLimit,
    Outcome,
    Refused,
    Request,
    ScriptError,
    SizeLimit,
    StackLimit,
    Value,
    WallLimit,
)
from keep_sandbox.seccomp import is_supported
from keep_sandbox.trusted import TrustedCall

NOW_MS = 1_700_000_000_000
SEED = 7
GMAIL = Capabilities(connectors={"gmail": {"search": "read", "send": "mutation"}})

needs_jail = pytest.mark.skipif(not is_supported(), reason="jailed workers need Linux on x86_64 or aarch64")


def prepare_script(body: str, top: str = "") -> str:
    """A whole script with this body as the `prepare` of consumer `c`, on line 2."""
    consumer = f"Keep.consumer({{async prepare(ctx, ev){{ {body} }}}})"
    return f"{top}\nexport default Keep.workflow({{consumers:{{c:{consumer}}}}});"


def prepare(body: str, *, capabilities: Capabilities = GMAIL, args: str = "[{}]") -> Invocation:
    """An invocation of that script."""
    return invocation(prepare_script(body), capabilities=capabilities, args=args)


def invocation(
    source: str,
    handler: str = "consumers.c.prepare",
    *,
    capabilities: Capabilities = GMAIL,
    args: str = "[{}]",
    seed: int = SEED,
) -> Invocation:
    """An invocation at a fixed time with a fixed seed."""
    return Invocation(source=source, handler=handler, args=args, capabilities=capabilities, now_ms=NOW_MS, seed=seed)


Reply = Callable[[Request], str | None]
"""The host's reaction to a request: an answer as JSON text, or None to refuse it."""


def gmail(request: Request) -> str | None:
    """The host of the attacks: `fatal` and `bad` are refused, anything else finds two mails."""
    params = json.loads(request.params)
    query = params.get("q") if isinstance(params, dict) else None
    return None if query in ("fatal", "bad") else "[1,2]"


async def drive(call: Call, reply: Reply = gmail) -> Outcome:
    """Answer an invocation until it ends."""
    while True:
        outcome = await call.next()
        if not isinstance(outcome, Request):
            return outcome
        said = reply(outcome)
        if said is None:
            return await call.refuse("refused by the test")
        await call.answer(outcome.id, said)


async def run(pool: SandboxPool, invocation: Invocation, reply: Reply = gmail, workflow_id: str = "w") -> Outcome:
    """Run one invocation to its end."""
    async with pool.invoke(workflow_id, invocation) as call:
        return await drive(call, reply)


@dataclass
class Trace:
    """The whole observable trace of a trusted invocation."""

    outcome: Outcome
    requests: list[Request]
    logs: list[str]


def trusted(invocation: Invocation, reply: Reply = gmail, limits: Limits | None = None) -> Trace:
    """Run one invocation to its end in this process."""
    call = TrustedCall(invocation, limits) if limits is not None else TrustedCall(invocation)
    requests: list[Request] = []
    while True:
        outcome = call.next()
        if not isinstance(outcome, Request):
            return Trace(outcome, requests, call.logs)
        requests.append(outcome)
        said = reply(outcome)
        if said is None:
            return Trace(call.refuse("refused by the test"), requests, call.logs)
        call.answer(outcome.id, said)


@dataclass(frozen=True)
class Attack:
    """One hostile script and the outcomes that count as contained."""

    id: str
    source: str
    expect: tuple[str, ...]

    def is_contained_by(self, outcome: Outcome) -> bool:
        """Return True if that is one of them."""
        word = label(outcome)
        return any(word == expected or (expected == "done:" and word.startswith("done:")) for expected in self.expect)


def attacks(name: str) -> list[Attack]:
    """The attacks of one file."""
    file: dict[str, Any] = json.loads((Path(__file__).parent / "attacks" / name).read_text("utf-8"))
    return [
        Attack(
            attack["id"],
            attack["module"] if "module" in attack else prepare_script(attack["body"], attack["top"]),
            tuple(attack["expect"]),
        )
        for attack in file["attacks"]
    ]


WORDS: dict[type, str] = {
    IssuedMutation: "mutate",
    Refused: "abort",
    WallLimit: "wall",
    EngineCrash: "crash",
    MemoryLimit: "fail:InternalError",
    StackLimit: "fail:RangeError",
    CallLimit: "fail:TooManyCalls",
    SizeLimit: "fail:TypeError",
    InvalidValue: "fail:TypeError",
    Deadlock: "fail:Deadlock",
}


def label(outcome: Outcome) -> str:
    """An outcome in the words of the attack files."""
    match outcome:
        case Value():
            return f"done:{outcome.value}"
        case CpuLimit():
            return "killed" if outcome.hard else "fail:Interrupted"
        case ScriptError():
            return "fail:Load" if outcome.phase == "load" else f"fail:{outcome.name}"
        case _:
            return WORDS.get(type(outcome)) or repr(outcome)


ITEMS = Capabilities(
    with_item=True, connectors={"gmail": {"search": "read", "send": "mutation"}}, mutation_is_terminal=False
)

LOOP_DELAY_MAX_S = 0.250
TICK_S = 0.005


class LoopWatch:
    """The longest time that the event loop was kept from a task that wanted to run."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def run(self) -> None:
        """Watch, until cancelled."""
        while True:
            started = anyio.current_time()
            await anyio.sleep(TICK_S)
            self.worst_s = max(self.worst_s, anyio.current_time() - started - TICK_S)
