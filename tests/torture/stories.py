"""The workflows of a torture: what their scripts do, what people say of them, and what has to come of each order. Pure.

An order is `name/number`. Its calls have labels: the order itself and, of a second call in one item, the order and `+`.
"""

from typing import Final, Literal

KINDS: Final = ("post", "send", "read", "park", "item", "risk", "ask", "wait", "mend", "redo")
"""What a workflow's name begins with says what its script does."""
WORKFLOWS: Final = tuple(f"{kind}-{number}" for number in range(3) for kind in KINDS)

Answer = Literal["approve", "reject", "retry"]

_CALLS: Final = {
    **dict.fromkeys(("post", "read", "item", "ask", "mend"), "post"),
    **dict.fromkeys(("send", "park", "risk", "wait", "redo"), "send"),
}
_KNOWN: Final = 1
_STEP: Final = 3
"""Odd, so that the faults of `mend` are in turn after a call and before one."""


def kind_of(order: str) -> str:
    return order.partition("-")[0]


def name_of(label: str) -> str:
    return label.partition("/")[0]


def number_of(label: str) -> int:
    return int(label.partition("/")[2].removesuffix("+"))


def is_job(name: str) -> bool:
    """Jobs look for their orders themselves and make calls inside items; everything else is a consumer of events."""
    return kind_of(name) in ("item", "risk", "wait", "redo")


def asks(name: str) -> bool:
    """Every call waits for a person."""
    return kind_of(name) in ("ask", "wait")


def call_of(name: str) -> str:
    """The method that it calls: `post` can be looked up afterwards, `send` cannot."""
    return f"outbox.{_CALLS[kind_of(name)]}"


def in_order_with(label: str) -> str:
    """What has the same is done in the order of its numbers: all of a workflow, or each third of one that parks."""
    name = name_of(label)
    return f"{name}/{number_of(label) % 3}" if kind_of(name) in ("park", "ask") else name


def labels_of(order: str) -> list[str]:
    """The calls that its script makes. Some items take two."""
    return [order, f"{order}+"] if is_job(order) and number_of(order) % 4 == 1 else [order]


def answer_to(label: str, *, sent_back: bool) -> Answer:
    """A person's answer to the question whether this call may be made; some are prepared once more before it."""
    number = number_of(label)
    if label.endswith("+"):
        return "reject" if number % 8 == 1 else "approve"
    if number % 4 == 2:
        return "reject"
    return "retry" if number % 4 == 1 and not sent_back else "approve"


def is_refused(label: str) -> bool:
    """Whether a person says no in the end."""
    return asks(label) and answer_to(label, sent_back=True) == "reject"


def effects_of(order: str) -> list[str]:
    """What has to be there outside in the end, exactly once: everything before the first no."""
    labels = labels_of(order)
    return labels[: next((at for at, label in enumerate(labels) if is_refused(label)), len(labels))]


def titles_of(order: str) -> list[str]:
    """The events that have to follow in the end, exactly once: an item that was refused publishes nothing, and the
    `next` of a consumer is told of it."""
    is_done = effects_of(order) == labels_of(order)
    if is_job(order):
        return [f"applied: {label}" for label in labels_of(order)] if is_done else []
    return [f"{'applied' if is_done else 'skipped'}: {order}"]


def script(name: str) -> str:
    """`read` looks outside first; `park` goes on beside a doubt; `ask` and `wait` need a person; `mend` and `redo` fail
    from some order on, and have to be repaired."""
    fails = kind_of(name) in ("mend", "redo")
    template = _JOB if is_job(name) else _CONSUMER
    return template % {
        "name": name,
        "call": call_of(name),
        "look": f'await ctx.outbox.orders({{ book: "{name}" }});' if kind_of(name) == "read" else "",
        "known": f"const known = {_KNOWN};" if fails else "const known = Infinity;",
    }


def repaired(source: str) -> tuple[str, int]:
    """The script with a few more orders known to it, and how many those are."""
    known = int(source.partition("const known = ")[2].partition(";")[0])
    return source.replace(f"const known = {known};", f"const known = {known + _STEP};"), known + _STEP


_CONSUMER: Final = """
%(known)s
const isNew = (order) => Number(order.split("/")[1]) >= known;
export default Keep.workflow({
  name: "%(name)s",
  topics: { "in": {}, "done": {} },
  consumers: {
    work: Keep.consumer({
      subscribe: ["in"],
      orderingKey: "order",
      async prepare(ctx) {
        const [event] = await ctx.peek("in", { limit: 1 });
        if (!event) return { reservations: [] };
        %(look)s
        if (isNew(event.messageId) && known %% 2 === 0) throw new Error("prepare does not know this order");
        return { reservations: [{ topic: "in", ids: [event.messageId] }], data: { event: event.messageId } };
      },
      async mutate(ctx, { data }) {
        await ctx.%(call)s({ event: data.event });
      },
      async next(ctx, { data }, mutation) {
        if (mutation.status === "none") return;  // everything that is pending waits behind something else
        await ctx.publish("done", { title: `${mutation.status}: ${data.event}`, payload: mutation });
        if (isNew(data.event)) throw new Error("next does not know this order");
        return { last: data.event };
      },
    }),
  },
});
"""

_JOB: Final = """
%(known)s
export default Keep.workflow({
  name: "%(name)s",
  topics: { "done": {} },
  jobs: {
    work: {
      schedule: { interval: "1s" },
      async handler(ctx, state) {
        const orders = await ctx.outbox.orders({ book: "%(name)s" });
        const done = state?.done ?? 0;
        for (const order of orders.slice(done, done + 10)) {
          await ctx.withItem(order, `Do ${order}`, async () => {
            if (ctx.item.isDone) return;
            const number = Number(order.split("/")[1]);
            await ctx.%(call)s({ event: order });
            await ctx.publish("done", { title: `applied: ${order}` });
            if (number %% 4 === 1) {
              await ctx.%(call)s({ event: `${order}+`, subkey: "second" });
              await ctx.publish("done", { title: `applied: ${order}+` });
            }
            if (number >= known) throw new Error("the item does not know this order");
          });
        }
        return { done: Math.min(orders.length, done + 10) };
      },
    },
  },
});
"""
