"""Scripts of a simulation: made by a seed from a small grammar, and written as JavaScript.

A spec travels in the first line of its source, so that the oracle knows what the script should do.
"""

import json
import random
from functools import lru_cache
from typing import Final

import msgspec

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
