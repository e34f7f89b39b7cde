"""Scripts of a simulation: made by a seed from a small grammar, written as JavaScript, and understood without it.

A spec travels in the first line of its source, so that the stand-in for the sandbox can do what the script says. A
test runs both and compares: every request, every result, byte for byte.
"""

import json
import random
from collections.abc import Generator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from keep_sandbox.declaration import Consumer as DeclaredConsumer
from keep_sandbox.declaration import Declaration, Schedule, Scheduled

HEAD: Final = "// spec: "
LATER: Final = 150_000


class Consumer(msgspec.Struct, frozen=True):
    """Takes events of one topic, calls `method` unless told otherwise, and publishes one event for each."""

    name: str
    topic: str
    batch: int
    method: str
    """`add`, `put`, or empty: it changes nothing outside."""
    spares: int
    """No call is made for a batch whose first number is a multiple of this; 0: always a call."""
    reads: bool
    to: str
    """Where `next` publishes to, if anywhere."""
    has_next: bool
    wakes: bool
    throws: str
    """The phase that does not bear poison: `prepare`, `mutate`, `next`, or empty."""
    greedy: bool = False
    """Waits until a batch is full, or `LATER` has passed."""
    ordered: bool = False
    """Events with the same `k` are dealt with in order."""


class Job(msgspec.Struct, frozen=True):
    """Does each chore inside an item, with these methods one after the other."""

    name: str
    methods: tuple[str, ...]
    publishes: bool = False
    """Whether it publishes an event about each chore, inside the item."""
    words: str = ""
    """What it says with each call. Another version may say it in other words, and means the same."""


class Spec(msgspec.Struct, frozen=True):
    name: str
    version: int
    topics: tuple[str, ...]
    poll_minutes: int
    """How often the producer looks; 0: there is none."""
    consumers: tuple[Consumer, ...]
    job: Job | None


def make(rng: random.Random, name: str) -> Spec:
    """A workflow: a chain of one to three consumers, perhaps with a producer before and a job beside."""
    length = rng.choice([1, 1, 1, 1, 2, 2, 3])
    topics = tuple(f"t{number}" for number in range(length + 1))
    consumers = tuple(_consumer(rng, number, topics) for number in range(length))
    methods = rng.choice([("put",), ("add",), ("put", "add")])
    job = Job("sweep", methods) if rng.random() < 0.25 else None
    spec = Spec(name, 1, topics, rng.choice([0, 0, 4, 9]), consumers, job)
    if job is not None:
        job = msgspec.structs.replace(job, publishes=rng.random() < 0.6, words="v1")
    return msgspec.structs.replace(spec, job=job)


def _consumer(rng: random.Random, number: int, topics: tuple[str, ...]) -> Consumer:
    method = rng.choice(["put", "put", "add", "add", ""])
    has_next = rng.random() < 0.85
    return Consumer(
        name=f"c{number}",
        topic=topics[number],
        batch=rng.choice([1, 1, 2, 3]),
        method=method,
        spares=rng.choice([0, 0, 0, 3]),
        reads=rng.random() < 0.3,
        to=topics[number + 1] if has_next else "",
        has_next=has_next,
        wakes=rng.random() < 0.2,
        throws=rng.choice(["", "", "prepare", "next", "mutate" if method else ""]),
        greedy=rng.random() < 0.2,
        ordered=rng.random() < 0.5,
    )


def changed(rng: random.Random, spec: Spec, *, mended: bool) -> Spec:
    """The next version: the same topics and names, other habits; a mended one throws nowhere."""
    consumers = []
    for each in spec.consumers:
        throws = "" if mended or rng.random() < 0.5 else each.throws
        consumers.append(
            msgspec.structs.replace(each, batch=rng.choice([1, 2, 3]), reads=rng.random() < 0.3, throws=throws)
        )
    job = spec.job
    if job is not None and rng.random() < 0.3:
        job = msgspec.structs.replace(job, words=f"v{spec.version + 1}")
    return msgspec.structs.replace(spec, version=spec.version + 1, consumers=tuple(consumers), job=job)


@lru_cache(maxsize=4096)
def spec_of(source: str) -> Spec:
    """What a source was made from."""
    return msgspec.json.decode(source.partition("\n")[0].removeprefix(HEAD), type=Spec)


def declaration(spec: Spec) -> Declaration:
    """What inspecting the source finds."""
    producers = {"poll": Scheduled(schedule=Schedule(interval=f"{spec.poll_minutes}m"))} if spec.poll_minutes else {}
    consumers = {
        each.name: DeclaredConsumer(
            subscribe=[each.topic],
            prepare=True,
            mutate=bool(each.method or each.throws == "mutate"),
            next=each.has_next,
            ordering_key="k" if each.ordered else None,
        )
        for each in spec.consumers
    }
    jobs = {spec.job.name: Scheduled(schedule=Schedule(interval="20m"))} if spec.job else {}
    return Declaration(name=spec.name, topics=list(spec.topics), producers=producers, consumers=consumers, jobs=jobs)


def uses(spec: Spec) -> list[str]:
    """The connector methods that it names, sorted."""
    found = {f"shop.{each.method}" for each in spec.consumers if each.method}
    found |= {"shop.look" for each in spec.consumers if each.reads}
    found |= {"shop.feed"} if spec.poll_minutes else set()
    found |= {"shop.chores", *(f"shop.{method}" for method in spec.job.methods)} if spec.job else set()
    return sorted(found)


# As JavaScript.


@lru_cache(maxsize=4096)
def source(spec: Spec) -> str:
    """The script."""
    groups = []
    if spec.poll_minutes:
        groups.append(f"producers: {{ poll: {{ {_every(f'{spec.poll_minutes}m')}, {_POLL} }} }}")
    consumers = ",\n".join(_consumer_text(spec, each) for each in spec.consumers)
    groups.append(f"consumers: {{\n{consumers} }}")
    if spec.job:
        groups.append(f"jobs: {{ {spec.job.name}: {{ {_every('20m')}, {_job_text(spec, spec.job)} }} }}")
    topics = json.dumps({topic: {} for topic in spec.topics})
    body = ",\n".join(groups)
    head = HEAD + msgspec.json.encode(spec).decode()
    text = f"{head}\nexport default Keep.workflow({{ name: {json.dumps(spec.name)}, topics: {topics},\n{body} }});\n"
    return text.replace("FLOW", json.dumps(spec.name))


def _every(interval: str) -> str:
    return f'schedule: {{ interval: "{interval}" }}'


_POLL: Final = """async handler(ctx, state) {
    const after = state?.after ?? 0;
    const feed = await ctx.shop.feed({ flow: FLOW, after });
    for (const each of feed)
      await ctx.publish("t0", {
        messageId: each.id, title: `Order ${each.id}`, payload: { n: each.n, poison: each.poison, k: each.k } });
    return { after: feed.length > 0 ? feed[feed.length - 1].n : after, times: (state?.times ?? 0) + 1 };
  }"""


def _consumer_text(spec: Spec, each: Consumer) -> str:
    look = f'await ctx.shop.look({{ query: "{each.name}" }});' if each.reads else ""
    wake = f", wakeAt: new Date(Date.now() + {LATER}).toISOString()" if each.wakes or each.greedy else ""
    throws = dict.fromkeys([each.throws], 'if (poison) throw new Error("poison");')
    waits = (
        f"if (found.length < {each.batch} && Date.now() < Date.parse(found[0].createdAt) + {LATER}) "
        f"return {{ reservations: [], data: {{ ids: [], n: 0, poison: false, times }}{wake} }};"
        if each.greedy
        else ""
    )
    text = f"""  {each.name}: Keep.consumer({{
    subscribe: ["{each.topic}"],{' orderingKey: "k",' if each.ordered else ""}
    async prepare(ctx, state) {{
      const times = state?.times ?? 0;
      {look}
      const found = await ctx.peek("{each.topic}", {{ limit: {each.batch} }});
      if (found.length === 0) return {{ reservations: [], data: {{ ids: [], n: 0, poison: false, times }}{wake} }};
      {waits}
      const ids = found.map((event) => event.messageId);
      const {{ n, k }} = found[0].payload;
      const poison = found.some((event) => event.payload.poison);
      {throws.get("prepare", "")}
      return {{ reservations: [{{ topic: "{each.topic}", ids }}], data: {{ ids, n, poison, times, k }} }};
    }},"""
    if each.method or each.throws == "mutate":
        spares = f"if (n % {each.spares} === 0) return;" if each.spares else ""
        call = f'await ctx.shop.{each.method}({{ flow: FLOW, by: "{each.name}", ids }});' if each.method else ""
        text += f"""
    async mutate(ctx, prepared) {{
      const {{ ids, n, poison }} = prepared.data;
      {throws.get("mutate", "")}
      {spares}
      {call}
    }},"""
    if each.has_next:
        publish = f"""await ctx.publish("{each.to}", {{
          messageId: `{each.name}:${{id}}`, title: `After ${{id}}`, payload: {{ n, poison, k, told, got }} }});"""
        text += f"""
    async next(ctx, prepared, result) {{
      const {{ ids, n, poison, times, k }} = prepared.data;
      {throws.get("next", "")}
      const told = result.status;
      const got = result.status === "applied" ? result.result.id : "";
      for (const id of ids)
        {publish}
      return {{ ids, told, got, times: times + 1 }};
    }},"""
    return text + "\n  })"


def _job_text(spec: Spec, job: Job) -> str:
    calls = "\n        ".join(
        f'await ctx.shop.{method}({{ flow: FLOW, by: "{job.name}", ids: [id], words: "{job.words}" }});'
        for method in job.methods
    )
    publish = f"""await ctx.publish("t0", {{
          messageId: `{job.name}:${{id}}`, title: `Done ${{id}}`, payload: {{ n: 1, poison: false, k: "a" }} }});"""
    return f"""async handler(ctx, state) {{
    const chores = await ctx.shop.chores({{ flow: FLOW }});
    for (const id of chores)
      await ctx.withItem(id, `Chore ${{id}}`, async () => {{
        if (ctx.item.isDone) return;
        {calls}
        {publish if job.publishes else ""}
      }});
    return {{ done: chores.length, times: (state?.times ?? 0) + 1 }};
  }}"""


# As Python.

Asking: TypeAlias = tuple[str, str, Any]
"""Kind, name and parameters of a request."""
Steps: TypeAlias = Generator[Asking, Any, Any]
"""A handler: asks, is answered, returns."""


class Poison(Exception):
    """What a script throws."""


def handler(spec: Spec, address: list[str], args: list[Any], now_ms: int) -> Steps:
    """The same handler, as a generator."""
    if address[0] == "producers":
        return _poll(spec, args[0] if args else None)
    if address[0] == "jobs":
        assert spec.job is not None, "a job that is called is declared"
        return _sweep(spec, spec.job, args[0] if args else None)
    consumer = next(each for each in spec.consumers if each.name == address[1])
    match address[2]:
        case "prepare":
            return _prepare(consumer, args[0] if args else None, now_ms)
        case "mutate":
            return _mutate(spec, consumer, args[0]["data"])
        case _:
            return _next(consumer, args[0]["data"], args[1])


def _poll(spec: Spec, state: Any) -> Steps:
    after = state["after"] if state is not None else 0
    feed = yield "read", "shop.feed", {"flow": spec.name, "after": after}
    for each in feed:
        payload = {"n": each["n"], "poison": each["poison"], "k": each["k"]}
        event = {"messageId": each["id"], "title": f"Order {each['id']}", "payload": payload}
        yield "publish", "publish", {"topic": "t0", "event": event}
    return {"after": feed[-1]["n"] if feed else after, "times": _times(state) + 1}


def _times(state: Any) -> int:
    """How often the handler has committed, by its own count: a state that is lost, or kept twice, shows in it."""
    return state["times"] if state is not None else 0


def _prepare(each: Consumer, state: Any, now_ms: int) -> Steps:
    if each.reads:
        yield "read", "shop.look", {"query": each.name}
    found = yield "peek", "peek", {"topic": each.topic, "options": {"limit": each.batch}}
    times = _times(state)
    nothing: dict[str, Any] = {"reservations": [], "data": {"ids": [], "n": 0, "poison": False, "times": times}}
    if each.wakes or each.greedy:
        nothing["wakeAt"] = _iso(now_ms + LATER)
    if not found:
        return nothing
    if each.greedy and len(found) < each.batch and now_ms < _instant(found[0]["createdAt"]) + LATER:
        return nothing
    ids = [event["messageId"] for event in found]
    poison = any(event["payload"]["poison"] for event in found)
    if poison and each.throws == "prepare":
        raise Poison
    n, k = found[0]["payload"]["n"], found[0]["payload"]["k"]
    data = {"ids": ids, "n": n, "poison": poison, "times": times, "k": k}
    return {"reservations": [{"topic": each.topic, "ids": ids}], "data": data}


def _mutate(spec: Spec, each: Consumer, data: Any) -> Steps:
    if data["poison"] and each.throws == "mutate":
        raise Poison
    if each.spares and data["n"] % each.spares == 0:
        return None
    if each.method:
        yield "mutation", f"shop.{each.method}", {"flow": spec.name, "by": each.name, "ids": data["ids"]}
    return None


def _next(each: Consumer, data: Any, result: Any) -> Steps:
    if data["poison"] and each.throws == "next":
        raise Poison
    told = result["status"]
    got = result["result"]["id"] if told == "applied" else ""
    for message_id in data["ids"]:
        payload = {"n": data["n"], "poison": data["poison"], "k": data["k"], "told": told, "got": got}
        event = {"messageId": f"{each.name}:{message_id}", "title": f"After {message_id}", "payload": payload}
        yield "publish", "publish", {"topic": each.to, "event": event}
    return {"ids": data["ids"], "told": told, "got": got, "times": data["times"] + 1}


def _sweep(spec: Spec, job: Job, state: Any) -> Steps:
    chores = yield "read", "shop.chores", {"flow": spec.name}
    for chore in chores:
        opened = yield "item_open", "withItem", {"id": chore, "title": f"Chore {chore}"}
        if not opened["isDone"]:
            for method in job.methods:
                params = {"flow": spec.name, "by": job.name, "ids": [chore], "words": job.words}
                yield "mutation", f"shop.{method}", params
            if job.publishes:
                payload = {"n": 1, "poison": False, "k": "a"}
                event = {"messageId": f"{job.name}:{chore}", "title": f"Done {chore}", "payload": payload}
                yield "publish", "publish", {"topic": "t0", "event": event}
        yield "item_close", "withItem", {"id": chore}
    return {"done": len(chores), "times": _times(state) + 1}


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
