"""A whole runtime whose worker was taken over: whatever it says, no actor crashes and the file is right.

The worker here is the host's side of one, down to the frames: what it says is encoded, decoded and judged by the real
conversation, and then answered by the real runtime.
"""

import random
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from hypothesis import strategies as st

from keep_actors import Connector, MutationCall, mutation, read
from keep_actors.connectors import Catalog
from keep_actors.kernel import VirtualTime
from keep_actors.sandbox_pool import Call, SandboxPool
from keep_actors.sandbox_pool.limits import RUN_LIMITS
from keep_actors.sandbox_pool.policy import PoolPolicy
from keep_actors.testing.life import Here
from keep_actors.testing.process import Process
from keep_sandbox import (
    Invocation,
    Limits,
    Outcome,
    ProtocolViolation,
    Refused,
    Request,
    Terminal,
    Value,
)
from keep_sandbox.conversation import Conversation, Violation
from keep_sandbox.json_text import check_json
from keep_sandbox.outcomes import Kind
from keep_sandbox.protocol import BadFrame, EndedFrame, FrameReader, FromWorker, RequestFrame, encode, from_worker
from keep_storage import Store, invariants
from tests.fuzz.json_texts import json_texts, object_of, scalars
from tests.fuzz.target import Target

SCRIPT = """
export default Keep.workflow({
  name: "flow", topics: ["in", "out"],
  producers: { poll: async (ctx) => {} },
  consumers: {
    file: { subscribe: ["in"], orderingKey: "customer.id", async prepare() {}, async mutate() {}, async next() {} },
  },
  jobs: { sweep: async (ctx) => {} },
});
"""


class Shop(Connector):
    name = "shop"

    @read
    async def find(self, q: str = "", limit: int = 1, anything: Any = None) -> Any:
        return [q, limit, anything]

    @mutation
    async def pay(self, to: str, amount: float = 0, anything: Any = None, *, call: MutationCall) -> Any:
        return {"to": to, "amount": amount, "anything": anything, "key": call.idempotency_key}


class Plan(msgspec.Struct, frozen=True):
    """What the worker says when a handler is invoked."""

    asks: list[tuple[Kind, str, str]] = []
    ends: str = "null"
    is_given: bool = True


class Attack(msgspec.Struct, frozen=True):
    """What it says for each handler, by its address, and where the runtime runs."""

    plans: dict[str, Plan]
    backend: str = "asyncio"


TAKES_ONE = '{"reservations":[{"topic":"in","ids":["one"]}],"data":{}}'
TAKES_NOTHING = '{"reservations":[]}'


class TakenOver:
    """A call whose worker says what it was told to."""

    def __init__(self, invocation: Invocation, limits: Limits, plan: Plan) -> None:
        self._limits = limits
        self._conversation = Conversation(1, invocation.capabilities, limits)
        asked = [RequestFrame(1, number, *each) for number, each in enumerate(plan.asks, start=1)]
        ended = EndedFrame(1, Value(value=plan.ends, is_given=plan.is_given))
        self._says: deque[FromWorker] = deque([*asked, ended])
        self.terminal: Terminal | None = None

    @property
    def logs(self) -> list[str]:
        return self._conversation.logs

    async def next(self) -> Outcome:
        reader = FrameReader(from_worker, self._limits.frame_bytes)
        try:
            reader.feed(encode(self._says.popleft()))
            frame = reader.next()
            assert frame is not None, "a frame was sent whole"
            outcome = self._conversation.receive(frame)
        except (BadFrame, Violation) as error:
            outcome = ProtocolViolation(message=str(error))
        assert outcome is not None, "it logs nothing"
        if not isinstance(outcome, Request):
            self.terminal = outcome
        return outcome

    async def answer(self, request_id: int, value: str) -> None:
        check_json(value, self._limits)
        assert self._conversation.answered(request_id)

    async def refuse(self, reason: str) -> Refused:
        self.terminal = Refused(reason=reason)
        return self.terminal


class TakenOverPool(SandboxPool):
    """Inspects as always; every worker is taken over."""

    def __init__(self, here: Here, plans: Mapping[str, Plan]) -> None:
        super().__init__("thread", RUN_LIMITS, PoolPolicy(), here)
        self._plans = plans

    @asynccontextmanager
    async def invoke(
        self,
        workflow_id: str,  # noqa: ARG002  # there is one
        invocation: Invocation,
        limits: Limits | None = None,
        *,
        owner: str = "",  # noqa: ARG002  # there is one
    ) -> AsyncIterator[Call]:
        # What it reserves, it reserves again when that is over, and is stopped for it: so only where it must.
        later = {"consumers.file.mutate", "consumers.file.next"} & set(self._plans)
        default = Plan(ends=TAKES_ONE if later else TAKES_NOTHING) if "prepare" in invocation.handler else Plan()
        yield TakenOver(invocation, limits or RUN_LIMITS, self._plans.get(invocation.handler, default))


async def live(attack: Attack) -> None:
    """Deploy, publish, let some time pass, end; and look whether all is well."""
    time, crashes = VirtualTime(), list[str]()
    store, catalog = Store.in_memory(time.now), Catalog([Shop()])
    process = Process(
        store,
        catalog,
        lambda here: TakenOverPool(here, attack.plans),
        time=time,
        rng=random.Random(7),
        on_crash=lambda whose, error, _: crashes.append(f"{whose}: {error!r}"),
    )
    try:
        async with anyio.create_task_group() as tasks:
            keep = await tasks.start(process.run)
            await keep.deploy(SCRIPT, start=False)
            for message_id, customer in (("one", 1), ("two", "x"), ("three", None)):
                payload = {"customer": {"id": customer}}
                await keep.publish("flow", "in", message_id=message_id, title="An event", payload=payload)
            await keep.resume("flow")
            await _pass_some_time(time)
            error = (await keep.workflow("flow")).error
            # Everything that is shown can be read.
            await keep.runs("flow"), await keep.events("flow", "in"), await keep.outputs("flow")
            await keep.attention()
            await process.leave()
        assert crashes == []
        assert process.error is None
        assert "keeps failing" not in error, error
        assert "could not be written down" not in error, error
        assert invariants.check(store.queries(), deep=True) == []
    finally:
        store.close()


async def _pass_some_time(time: VirtualTime) -> None:
    end = time.now() + 11 * 60_000
    for _ in range(100):
        await anyio.wait_all_tasks_blocked()
        due = time.next_due
        if due is None or due > end:
            return
        time.advance_to(max(due, time.now()))


def _or_any(good: str) -> st.SearchStrategy[str]:
    """Mostly what works, so that what comes after it is reached."""
    return st.just(good) | st.just(good) | scalars | json_texts


def _members(**fields: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """An object with some of these, in some order, perhaps with one of them twice."""
    member = st.one_of([st.tuples(st.just(name), value) for name, value in fields.items()])
    whole = st.tuples(*fields.values()).map(lambda values: object_of(list(zip(fields, values, strict=True))))
    return whole | whole | st.lists(member, max_size=len(fields) + 1).map(object_of) | json_texts


topic = _or_any('"in"')
payload = _members(customer=_members(id=_or_any("1")), data=json_texts) | json_texts
ASKS: Mapping[tuple[Kind, str], st.SearchStrategy[str]] = {
    (Kind.PEEK, "peek"): _members(topic=topic, options=_members(limit=_or_any("1"), after=_or_any("0"))),
    (Kind.GET_BY_IDS, "getByIds"): _members(topic=topic, ids=_or_any('["one"]')),
    (Kind.PUBLISH, "publish"): _members(
        topic=topic, event=_members(title=_or_any('"T"'), payload=payload, messageId=_or_any('"m"'))
    ),
    (Kind.READ, "shop.find"): _members(q=_or_any('"q"'), limit=_or_any("1"), anything=json_texts),
    (Kind.MUTATION, "shop.pay"): _members(
        to=_or_any('"ann"'), amount=_or_any("1"), anything=json_texts, subkey=_or_any('"s"')
    ),
    (Kind.ITEM_OPEN, "withItem"): _members(id=_or_any('"i"'), title=_or_any('"T"')),
    (Kind.ITEM_CLOSE, "withItem"): _members(id=_or_any('"i"')),
}


def _asking(ask: tuple[Kind, str]) -> st.SearchStrategy[tuple[Kind, str, str]]:
    return ASKS[ask].map(lambda text: (*ask, text))


asks = st.one_of([_asking(ask) for ask in ASKS])
results = _members(
    reservations=_or_any('[{"topic":"in","ids":["one"]}]'),
    data=json_texts,
    ui=_members(title=_or_any('"T"')),
    wakeAt=_or_any('"2024-01-01T00:00:00Z"'),
)


def _plan(ends: st.SearchStrategy[str], *usual: tuple[Kind, str]) -> st.SearchStrategy[Plan]:
    likely = st.one_of([_asking(ask) for ask in usual])
    return st.builds(Plan, asks=st.lists(likely | likely | asks, max_size=5), ends=ends, is_given=st.booleans())


clock_plans = {
    "producers.poll": _plan(json_texts, (Kind.PUBLISH, "publish"), (Kind.READ, "shop.find")),
    "jobs.sweep": _plan(
        json_texts,
        (Kind.ITEM_OPEN, "withItem"),
        (Kind.MUTATION, "shop.pay"),
        (Kind.ITEM_CLOSE, "withItem"),
    ),
}
consumer_plans = {
    "consumers.file.prepare": _plan(results, (Kind.PEEK, "peek"), (Kind.GET_BY_IDS, "getByIds")),
    "consumers.file.mutate": _plan(json_texts, (Kind.MUTATION, "shop.pay")),
    "consumers.file.next": _plan(json_texts, (Kind.PUBLISH, "publish")),
}
plans: st.SearchStrategy[dict[str, Plan]] = st.one_of(
    # A script that fails stops its workflow: one handler at a time, so that none hides another.
    *[st.fixed_dictionaries({handler: plan}) for handler, plan in {**clock_plans, **consumer_plans}.items()],
    st.fixed_dictionaries({}, optional=consumer_plans),
    st.fixed_dictionaries({}, optional={**clock_plans, **consumer_plans}),
)
attacks = st.builds(Attack, plans=plans, backend=st.sampled_from(["asyncio", "trio"]))


def check(attack: Attack) -> None:
    """Live through it."""
    anyio.run(live, attack, backend=attack.backend)


TARGET = Target(
    "hostile_worker",
    "a runtime whose worker was taken over",
    attacks,
    check,
    read=lambda data: msgspec.json.decode(data, type=Attack),
    write=msgspec.json.encode,
    suffix=".json",
    examples=50,
)
