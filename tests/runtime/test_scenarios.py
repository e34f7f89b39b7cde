"""Whole workflows, each a real script on a virtual clock: what people build, and what they see of it."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from examples.connectors import Gmail
from keep_actors import DeployRefused, Policy, Reason, Rejected
from keep_actors.connectors import Transient
from keep_actors.kernel import ActorStopped, VirtualTime
from keep_sandbox.declaration import Code
from keep_storage import invariants, reads
from keep_storage.model import JournalEntry, MutationStatus, Run, Session, SessionResult
from keep_storage.sqlite import open_reader
from keep_storage.transaction import Queries
from tests.runtime.fakes import Fake, raises
from tests.runtime.world import MINUTE, START, TimedBox, world

pytestmark = pytest.mark.anyio

HOUR = 60 * MINUTE
DAY = 24 * HOUR

SHARED = """
const take = (topic, events, more) =>
  ({ reservations: [{ topic, ids: events.map((e) => e.messageId) }], data: events.map((e) => e.payload), ...more });
const nothing = { reservations: [], data: null };
"""
"""What the scripts below have at their top: `take` reserves events and hands their payloads on."""


def flow(name: str = "flow", *, topics: str = "in", producers: str = "", consumers: str = "") -> str:
    """A script. `topics` are separated by blanks."""
    declared = json.dumps({topic: {} for topic in topics.split()})
    return f"""{SHARED}
    export default Keep.workflow({{
      name: {json.dumps(name)}, topics: {declared}, producers: {{ {producers} }}, consumers: {{ {consumers} }},
    }});"""


FILE = """
  file: Keep.consumer({
    subscribe: ["in"],
    async prepare(ctx) {
      const [event] = await ctx.peek("in");
      return event ? take("in", [event], { ui: { title: `File ${event.messageId}` } }) : nothing;
    },
    async mutate(ctx, prepared) { await ctx.fake.put({ text: prepared.data[0] }); },
  }),
"""
"""A consumer that puts the payload of one event of `in` at a time."""

POLL = """
  async poll(ctx, state) {
    const found = await ctx.fake.search({});
    await ctx.publish("in", { messageId: `poll-${state ?? 0}`, title: "A poll", payload: `poll ${state ?? 0}` });
    return (state ?? 0) + 1;
  },
"""
"""A producer without a schedule that publishes one event each time."""


@contextmanager
def looking(path: Path) -> Iterator[Queries]:
    """The file, as anybody may look at it while a runtime has it. What must hold, holds."""
    reader = open_reader(str(path))
    try:
        assert invariants.check(reader, deep=True) == []
        yield reader
    finally:
        reader.close()


def at(text: str) -> int:
    """A time of day of the first morning, in UTC, as milliseconds."""
    return int(datetime.fromisoformat(f"2023-11-15T{text}").replace(tzinfo=UTC).timestamp() * 1000)


def returned(run: Run) -> Any:
    """The state that a run returned."""
    return json.loads(run.output_state or "null")


async def sessions_of(box: TimedBox, path: Path, workflow: str = "flow") -> list[Session]:
    """Oldest first."""
    workflow_id = (await box.keep.workflow(workflow)).id
    with looking(path) as q:
        return reads.sessions(q, workflow_id)[::-1]


# Consumers: what starts them, and what does not.

CHAIN = flow(
    topics="order invoice",
    consumers="""
      price: Keep.consumer({
        subscribe: ["order"],
        async prepare(ctx) {
          const [order] = await ctx.peek("order");
          return order ? take("order", [order]) : nothing;
        },
        async next(ctx, prepared) {
          for (const { id, price } of prepared.data)
            await ctx.publish("invoice", { messageId: `i-${id}`, title: `Invoice ${id}`, payload: { id, price } });
        },
      }),
      bill: Keep.consumer({
        subscribe: ["invoice"],
        async prepare(ctx) {
          const [invoice] = await ctx.peek("invoice");
          return invoice ? take("invoice", [invoice]) : nothing;
        },
        async mutate(ctx, prepared) {
          const [{ id, price }] = prepared.data;
          await ctx.fake.put({ text: `${id} costs ${price}` });
        },
      }),
    """,
)


async def test_what_one_consumer_publishes_the_next_one_takes() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(CHAIN)
        await box.publish("flow", "order", "o-1", payload={"id": 1, "price": 12})
        await box.publish("flow", "order", "o-2", payload={"id": 2, "price": 7})
        await box.settle()
        assert fake.texts == ["1 costs 12", "2 costs 7"]
        assert await box.statuses("flow", "order") == {"o-1": "consumed", "o-2": "consumed"}
        assert await box.statuses("flow", "invoice") == {"i-1": "consumed", "i-2": "consumed"}


CORRELATE = flow(
    topics="order payment",
    consumers="""
      ship: Keep.consumer({
        subscribe: ["order", "payment"],
        async prepare(ctx) {
          const [orders, payments] = [await ctx.peek("order"), await ctx.peek("payment")];
          for (const order of orders) {
            const payment = payments.find((each) => each.payload === order.payload);
            if (payment) return {
              reservations: [
                { topic: "order", ids: [order.messageId] }, { topic: "payment", ids: [payment.messageId] },
              ],
              data: order.payload,
            };
          }
          return nothing;
        },
        async mutate(ctx, prepared) { await ctx.fake.put({ text: `ship ${prepared.data}` }); },
      }),
    """,
)


async def test_events_that_belong_together_are_reserved_together_and_others_wait_without_a_busy_loop() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(CORRELATE)
        for topic, number in [("order", "1"), ("order", "2"), ("payment", "2")]:
            await box.publish("flow", topic, f"{topic}-{number}", payload=number)
            await box.settle()
        assert fake.texts == ["ship 2"]
        assert await box.statuses("flow", "order") == {"order-1": "pending", "order-2": "consumed"}
        # Two looks that found no pair, one that did, and one at what was left.
        assert [run.reserved_count for run in await box.runs("flow", "ship")] == [0, 0, 2, 0]
        await box.advance(30 * DAY)
        assert len(await box.runs("flow", "ship")) == 4
        await box.publish("flow", "payment", "payment-1", payload="1")
        await box.settle()
        assert fake.texts == ["ship 2", "ship 1"]
        assert len(await box.runs("flow", "ship")) == 5


BATCH = flow(
    consumers="""
      file: Keep.consumer({
        subscribe: ["in"],
        async prepare(ctx) {
          const pending = await ctx.peek("in", { limit: 5 });
          if (pending.length === 0) return nothing;
          const deadline = Date.parse(pending[0].createdAt) + 10 * 60 * 1000;
          if (pending.length === 5 || Date.now() >= deadline) return take("in", pending);
          return { ...nothing, wakeAt: new Date(deadline).toISOString() };
        },
        async mutate(ctx, prepared) { await ctx.fake.put({ text: prepared.data.join(" ") }); },
      }),
    """,
)


async def test_a_batch_is_taken_when_it_is_full_or_when_its_first_event_has_waited_long_enough() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(BATCH)
        for each in "abc":
            await box.publish("flow", "in", each, payload=each)
        await box.settle()
        await box.advance(10 * MINUTE - 1)
        assert fake.texts == []
        await box.advance(1)
        assert fake.texts == ["a b c"]
        for each in "defghij":
            await box.publish("flow", "in", each, payload=each)
        await box.settle()
        assert fake.texts == ["a b c", "d e f g h"]
        runs = len(await box.runs("flow", "file"))
        await box.advance(10 * MINUTE)
        assert fake.texts == ["a b c", "d e f g h", "i j"]
        assert len(await box.runs("flow", "file")) == runs + 1
        await box.advance(DAY)
        assert len(await box.runs("flow", "file")) == runs + 1


DIGEST = flow(
    producers="""
      collect: {
        schedule: { cron: "0 8 * * *" },
        async handler(ctx, state) {
          const found = await ctx.gmail.search({ after: state });
          for (const mail of found)
            await ctx.publish("in", { messageId: mail.id, title: `Mail: ${mail.subject}`, payload: mail.subject });
          return found.at(-1)?.id ?? state;
        },
      },
    """,
    consumers="""
      digest: Keep.consumer({
        subscribe: ["in"],
        async prepare(ctx) {
          const pending = await ctx.peek("in");
          const nine = new Date();
          nine.setUTCHours(9, 0, 0, 0);
          if (pending.length === 0) return nothing;
          if (Date.now() < nine.getTime()) return { ...nothing, wakeAt: nine.toISOString() };
          return take("in", pending);
        },
        async mutate(ctx, prepared) {
          await ctx.gmail.send({ to: "ann@example.com", subject: "Digest", body: prepared.data.join(", ") });
        },
      }),
    """,
)


async def test_a_daily_digest_collects_at_eight_in_berlin_and_is_sent_at_nine_in_greenwich() -> None:
    gmail = Gmail()
    async with world(gmail) as box:
        await box.keep.deploy(DIGEST, timezone="Europe/Berlin")
        await box.settle()
        gmail.receive("bob@example.com", "Lunch?")
        gmail.receive("cleo@example.com", "Invoice 8")
        await box.advance(at("06:59:59.999") - START)
        assert await box.runs("flow", "collect") == [], "what runs by cron does not run at deploy"
        await box.advance(1)
        assert [run.created_at for run in await box.runs("flow", "collect")] == [at("07:00:00")]
        assert [run.reserved_count for run in await box.runs("flow", "digest")] == [0]
        await box.advance(2 * HOUR - 1)
        assert len(await box.runs("flow", "digest")) == 1
        await box.advance(1)
        assert [run.created_at for run in await box.runs("flow", "digest")] == [at("07:00:00"), at("09:00:00")]
        assert [mail.body for mail in gmail.sent] == ["Lunch?, Invoice 8"]
        await box.advance(DAY)
        assert len(await box.runs("flow", "collect")) == 2
        assert len(gmail.sent) == 1


async def test_an_empty_run_hands_next_the_status_none_saves_its_state_and_sleeps() -> None:
    script = flow(
        consumers="""
          file: Keep.consumer({
            subscribe: ["in"],
            async prepare(ctx, state) { return { reservations: [], data: { looks: (state?.looks ?? 0) + 1 } }; },
            async mutate(ctx, prepared) { await ctx.fake.put({ text: "never" }); },
            async next(ctx, prepared, result) { return { looks: prepared.data.looks, result }; },
          }),
        """
    )
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(script)
        for number in ("1", "2"):
            await box.publish("flow", "in", number)
            await box.settle()
        runs = await box.runs("flow", "file")
        assert [returned(run) for run in runs] == [
            {"looks": 1, "result": {"status": "none"}},
            {"looks": 2, "result": {"status": "none"}},
        ]
        await box.advance(30 * DAY)
        assert len(await box.runs("flow", "file")) == 2
        assert await box.statuses("flow", "in") == {"1": "pending", "2": "pending"}
        assert fake.calls == []


async def test_a_mutate_that_calls_nothing_consumes_its_events_and_leaves_no_mutation() -> None:
    script = flow(
        consumers="""
          file: Keep.consumer({
            subscribe: ["in"],
            async prepare(ctx) {
              const [event] = await ctx.peek("in");
              return event ? take("in", [event]) : nothing;
            },
            async mutate(ctx, prepared) {
              if (prepared.data[0] === "spam") return;
              await ctx.fake.put({ text: prepared.data[0] });
            },
            async next(ctx, prepared, result) { return result.status; },
          }),
        """
    )
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(script)
        for each in ("spam", "ham"):
            await box.publish("flow", "in", each, payload=each)
        await box.settle()
        assert await box.statuses("flow", "in") == {"spam": "consumed", "ham": "consumed"}
        assert [returned(run) for run in await box.runs("flow", "file")] == ["none", "applied"]
        assert fake.texts == ["ham"]
        assert len(await box.keep.outputs("flow")) == 1
        spam, ham = reversed(await box.keep.inputs("flow"))
        assert (spam.outputs, len(ham.outputs)) == ([], 1)


async def test_a_consumer_that_takes_one_of_many_runs_again_at_once() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(flow(consumers=FILE), start=False)
        for number in range(7):
            await box.publish("flow", "in", f"e{number}", payload=f"e{number}")
        await box.keep.resume("flow")
        await box.settle()
        assert fake.texts == [f"e{number}" for number in range(7)]
        assert [run.reserved_count for run in await box.runs("flow", "file")] == [1] * 7


LOOK_AND_WAIT = flow(
    consumers="""
      file: Keep.consumer({
        subscribe: ["in"],
        async prepare(ctx) {
          const pending = await ctx.peek("in");
          await ctx.fake.search({});
          return pending.length >= 2 ? take("in", pending) : nothing;
        },
        async mutate(ctx, prepared) { await ctx.fake.put({ text: prepared.data.join(" ") }); },
      }),
    """,
)


async def test_events_that_come_while_a_run_looks_are_looked_at_after_it() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(LOOK_AND_WAIT)
        looking_around = fake.hang("search")
        await box.publish("flow", "in", "a", payload="a")
        await looking_around.reached.wait()
        # It has peeked, and seen one. These come too late for it, and none of them starts a run by itself.
        for each in "bcd":
            await box.publish("flow", "in", each, payload=each)
        looking_around.release()
        await box.settle()
        assert fake.texts == ["a b c d"]
        assert [run.reserved_count for run in await box.runs("flow", "file")] == [0, 4]


async def test_events_that_come_while_a_call_is_under_way_are_taken_after_it() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(flow(consumers=FILE))
        call = fake.hang("put")
        await box.publish("flow", "in", "a", payload="a")
        await call.reached.wait()
        for each in "bcd":
            await box.publish("flow", "in", each, payload=each)
        assert await box.statuses("flow", "in") == {"a": "reserved", "b": "pending", "c": "pending", "d": "pending"}
        call.release()
        await box.settle()
        assert fake.texts == ["a", "b", "c", "d"]


async def test_a_pending_event_that_changes_wakes_its_consumer_and_one_that_stays_the_same_does_not() -> None:
    script = flow(
        consumers="""
          file: Keep.consumer({
            subscribe: ["in"],
            async prepare(ctx) {
              const ready = (await ctx.peek("in")).filter((event) => event.payload.ready);
              return ready.length ? take("in", ready) : nothing;
            },
          }),
        """
    )
    async with world() as box:
        await box.keep.deploy(script)
        await box.publish("flow", "in", "a", payload={"ready": False})
        await box.settle()
        await box.publish("flow", "in", "a", payload={"ready": False})
        await box.settle()
        assert len(await box.runs("flow", "file")) == 1
        await box.publish("flow", "in", "a", payload={"ready": True})
        await box.settle()
        assert await box.statuses("flow", "in") == {"a": "consumed"}
        assert len(await box.runs("flow", "file")) == 2


# Causes and effects.

FAN_OUT = flow(
    topics="order mail row stock",
    consumers="""
      split: Keep.consumer({
        subscribe: ["order"],
        async prepare(ctx) {
          const orders = await ctx.peek("order");
          return orders.length ? take("order", orders) : nothing;
        },
        async next(ctx, prepared) {
          for (const topic of ["mail", "row"]) for (const id of prepared.data)
            await ctx.publish(topic, { messageId: id, title: `${topic} for ${id}`, payload: id });
        },
      }),
      send: Keep.consumer({
        subscribe: ["mail"],
        async prepare(ctx) {
          const [event] = await ctx.peek("mail");
          return event ? take("mail", [event], { ui: { title: `Mail about ${event.payload}` } }) : nothing;
        },
        async mutate(ctx, prepared) { await ctx.fake.put({ text: `mail ${prepared.data[0]}` }); },
        async next(ctx, prepared) {
          const [id] = prepared.data;
          await ctx.publish("stock", { messageId: id, title: `Stock for ${id}`, payload: id });
        },
      }),
      write: Keep.consumer({
        subscribe: ["row", "stock"],
        async prepare(ctx) {
          const [row] = await ctx.peek("row");
          return row ? take("row", [row]) : nothing;
        },
        async mutate(ctx, prepared) { await ctx.fake.put({ text: `row ${prepared.data[0]}` }); },
      }),
    """,
)


async def test_what_comes_of_an_event_can_be_followed_through_every_topic_it_fans_out_to(tmp_path: Path) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    async with world(fake, path=path) as box:
        workflow_id = (await box.keep.deploy(FAN_OUT)).workflow_id
        await box.publish("flow", "order", "o-1", payload="o-1")
        await box.settle()
        assert sorted(fake.texts) == ["mail o-1", "row o-1"]
        [order] = await box.keep.inputs("flow")
        outputs = await box.keep.outputs("flow")
        assert (order.topic, order.status) == ("order", "consumed")
        assert sorted(each.params for each in order.outputs) == ['{"text":"mail o-1"}', '{"text":"row o-1"}']
        assert {each.mutation_id for each in order.outputs} == {each.mutation_id for each in outputs}
        [mail] = [each for each in outputs if each.title]
        assert (mail.title, mail.call, mail.status) == ("Mail about o-1", "fake.put", MutationStatus.APPLIED)
        explained = await box.keep.explain(mail.run_id)
        assert [event.title for event in explained.selected] == ["mail for o-1"]
        assert explained.attempted == [mail]
        with looking(path) as q:
            for topic in ("mail", "row", "stock"):
                event = reads.event(q, workflow_id, topic, "o-1")
                assert event is not None
                assert [root.title for root in reads.roots_of_event(q, event.id)] == ["Event o-1"], topic
            [root] = reads.events(q, workflow_id, "order")
            assert reads.roots_of_event(q, root.id) == []


async def test_what_is_made_of_several_events_has_all_their_causes(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    async with world(Fake(), path=path) as box:
        workflow_id = (await box.keep.deploy(FAN_OUT, start=False)).workflow_id
        for each in ("o-1", "o-2"):
            await box.publish("flow", "order", each, payload=each)
        await box.keep.resume("flow")
        await box.settle()
        with looking(path) as q:
            event = reads.event(q, workflow_id, "stock", "o-1")
            assert event is not None
            assert [root.message_id for root in reads.roots_of_event(q, event.id)] == ["o-1", "o-2"]
        assert [each.message_id for each in await box.keep.inputs("flow")] == ["o-2", "o-1"]


# Sessions.


async def test_a_burst_of_work_is_one_session_with_its_runs_and_its_costs(tmp_path: Path) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    fake.cost_micros = 5
    async with world(fake, path=path) as box:
        await box.keep.deploy(flow(producers=POLL, consumers=FILE))
        await box.settle()
        await box.advance(5 * MINUTE)
        first, second = await sessions_of(box, path)
        for session in (first, second):
            assert (session.result, session.error) == (SessionResult.COMPLETED, "")
            # The producer's search and the consumer's put, at 5 each.
            assert (session.handler_run_count, session.cost_micros) == (2, 10)
        assert (first.trigger, first.started_at, first.ended_at) == ("schedule", START, START)
        assert second.started_at == START + 5 * MINUTE
        await box.publish("flow", "in", "by hand", payload="by hand")
        await box.settle()
        *_, third = await sessions_of(box, path)
        assert (third.trigger, third.handler_run_count, third.cost_micros) == ("event", 1, 5)
        runs = await box.keep.runs("flow")
        assert Counter(run.session_id for run in runs) == {first.id: 2, second.id: 2, third.id: 1}
        assert all(run.cost_micros == 5 for run in runs)


async def test_a_run_that_fails_ends_its_session_and_its_costs_are_counted(tmp_path: Path) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    fake.cost_micros = 5
    fake.plan("put", raises(Transient("try again later")))
    async with world(fake, path=path) as box:
        await box.keep.deploy(flow(producers=POLL, consumers=FILE))
        await box.settle()
        [failed] = await sessions_of(box, path)
        assert (failed.result, failed.handler_run_count, failed.cost_micros) == (SessionResult.FAILED, 1, 10)
        assert "later" in failed.error
        await box.advance(MINUTE)
        _, again = await sessions_of(box, path)
        assert (again.result, again.handler_run_count, again.cost_micros) == (SessionResult.COMPLETED, 1, 5)
        assert fake.texts == ["poll 0"]


# Producers.

TWO_PRODUCERS = flow(
    producers="""
      async plain(ctx, state) { return (state ?? 0) + 1; },
      hourly: { schedule: { interval: "1h" }, async handler(ctx, state) { return (state ?? 0) + 1; } },
    """,
)


async def starts(box: TimedBox, handler: str) -> list[int]:
    """When a handler ran, in milliseconds since the start of the world."""
    return [run.created_at - START for run in await box.runs("flow", handler)]


async def test_producers_run_at_deploy_and_then_by_their_interval_or_the_default_one() -> None:
    async with world(policy=Policy(producer_interval_ms=25 * MINUTE)) as box:
        await box.keep.deploy(TWO_PRODUCERS)
        await box.settle()
        for _ in range(12):
            await box.leap(10 * MINUTE)
        # An interval is counted from the end of a run: what the clock jumped over is not made up for.
        assert await starts(box, "plain") == [0, 30 * MINUTE, 60 * MINUTE, 90 * MINUTE, 120 * MINUTE]
        assert await starts(box, "hourly") == [0, HOUR, 2 * HOUR]
        assert returned(await box.last_run("flow", "plain")) == 5


async def test_without_another_policy_a_producer_without_a_schedule_runs_every_five_minutes() -> None:
    async with world() as box:
        await box.keep.deploy(TWO_PRODUCERS)
        await box.settle()
        for _ in range(3):
            await box.advance(5 * MINUTE - 1)
            await box.advance(1)
        assert await starts(box, "plain") == [0, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE]


async def test_run_now_queues_every_producer_whatever_its_schedule() -> None:
    async with world() as box:
        await box.keep.deploy(TWO_PRODUCERS)
        await box.settle()
        await box.advance(MINUTE)
        await box.keep.run_now("flow", by="ann")
        await box.settle()
        assert await starts(box, "plain") == await starts(box, "hourly") == [0, MINUTE]
        await box.advance(HOUR - 1)
        assert await starts(box, "hourly") == [0, MINUTE], "the next one is an hour after this one"
        await box.advance(1)
        assert await starts(box, "hourly") == [0, MINUTE, HOUR + MINUTE]


async def test_run_now_is_refused_while_a_run_is_active_or_nothing_may_run() -> None:
    fake = Fake()
    async with world(fake) as box:
        polling = fake.hang("search")
        await box.keep.deploy(flow(producers=POLL, consumers=FILE))
        await polling.reached.wait()
        with pytest.raises(Rejected) as active:
            await box.keep.run_now("flow")
        polling.release()
        await box.settle()
        await box.keep.pause("flow")
        with pytest.raises(Rejected) as paused:
            await box.keep.run_now("flow")
        assert (active.value.reason, paused.value.reason) == (Reason.RUN_ALREADY_ACTIVE, Reason.WORKFLOW_NOT_ACTIVE)
        await box.advance(0)
        assert len(await box.runs("flow", "poll")) == 1


async def test_schedules_that_were_missed_while_nothing_ran_are_made_up_for_once(tmp_path: Path) -> None:
    path, time = tmp_path / "keep.db", VirtualTime(START)
    async with world(path=path, time=time) as box:
        await box.keep.deploy(TWO_PRODUCERS)
        await box.settle()
    time.advance(3 * HOUR + MINUTE)
    async with world(path=path, time=time) as box:
        await box.settle()
        assert await starts(box, "plain") == await starts(box, "hourly") == [0, 3 * HOUR + MINUTE]
        await box.advance(HOUR)
        assert await starts(box, "hourly") == [0, 3 * HOUR + MINUTE, 4 * HOUR + MINUTE]


async def test_a_wake_up_that_was_missed_while_nothing_ran_comes_at_the_next_start(tmp_path: Path) -> None:
    fake, path, time = Fake(), tmp_path / "keep.db", VirtualTime(START)
    async with world(fake, path=path, time=time) as box:
        await box.keep.deploy(BATCH)
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
    time.advance(5 * MINUTE)
    async with world(fake, path=path, time=time) as box:
        await box.settle()
        assert fake.texts == []
    time.advance(HOUR)
    async with world(fake, path=path, time=time) as box:
        await box.settle()
        assert fake.texts == ["a"]


# Several workflows.


async def test_several_workflows_work_side_by_side_on_one_file(tmp_path: Path) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    names = [f"flow {number}" for number in range(5)]
    async with world(fake, path=path) as box:
        for name in names:
            await box.keep.deploy(flow(name, producers=POLL, consumers=FILE))
        await box.settle()
        hung = fake.hang("put")
        await box.publish("flow 3", "in", "slow", payload="slow")
        await hung.reached.wait()
        for name in names:
            await box.publish(name, "in", "e", payload=f"for {name}")
        # One that hangs holds up itself and nobody else: the others finish before it does.
        await until_consumed(box, [name for name in names if name != "flow 3"])
        assert (await box.statuses("flow 3", "in"))["e"] == "pending"
        hung.release()
        await box.settle()
        assert Counter(fake.texts) == Counter({"poll 0": 5, "slow": 1, **{f"for {name}": 1 for name in names}})
        assert [workflow.name for workflow in await box.keep.workflows()] == names
        with looking(path) as q:
            assert len(reads.workflows(q)) == 5


async def until_consumed(box: TimedBox, names: list[str]) -> None:
    """Wait until nothing is pending in the topic `in` of these."""
    for name in names:
        async with aclosing(box.keep.watch(name, after=0)) as entries:
            async for _ in entries:
                if set((await box.statuses(name, "in")).values()) == {"consumed"}:
                    break


# Deploying.


async def versions(box: TimedBox, path: Path) -> list[str]:
    workflow_id = (await box.keep.workflow("flow")).id
    with looking(path) as q:
        return [f"{each.major}.{each.minor}" for each in reversed(reads.versions(q, workflow_id))]


async def test_a_script_is_deployed_for_the_first_time_again_changed_and_as_a_major_version(tmp_path: Path) -> None:
    path = tmp_path / "keep.db"
    async with world(Fake(), path=path) as box:
        first = await box.keep.deploy(flow(consumers=FILE))
        same = await box.keep.deploy(flow(consumers=FILE))
        changed = await box.keep.deploy(flow(producers=POLL, consumers=FILE), workflow="flow")
        by_id = await box.keep.deploy(flow(consumers=FILE), workflow=first.workflow_id)
        major = await box.keep.deploy(flow(consumers=FILE), major=True, workflow="flow")
        assert [each.version for each in (first, same, changed, by_id, major)] == ["1.0", "1.0", "1.1", "1.2", "2.0"]
        assert {each.workflow_id for each in (first, same, changed, by_id, major)} == {first.workflow_id}
        assert await versions(box, path) == ["1.0", "1.1", "1.2", "2.0"]


async def test_two_that_deploy_a_new_name_at_once_deploy_one_workflow() -> None:
    async with world(Fake()) as box:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(box.keep.deploy, flow(consumers=FILE))
            tasks.start_soon(box.keep.deploy, flow(consumers=FILE))
        assert len(await box.keep.workflows()) == 1


async def test_a_workflow_that_is_deployed_without_being_started_waits_for_its_owner() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(flow(consumers=FILE), start=False)
        await box.publish("flow", "in", "a", payload="a")
        await box.advance(DAY)
        assert (fake.texts, (await box.keep.workflow("flow")).status) == ([], "ready")
        await box.keep.deploy(flow(consumers=FILE))
        await box.settle()
        assert (fake.texts, (await box.keep.workflow("flow")).status) == (["a"], "active")


async def test_the_name_of_an_archived_workflow_is_free_for_another() -> None:
    fake = Fake()
    async with world(fake) as box:
        old = await box.keep.deploy(flow(consumers=FILE))
        await box.keep.archive("flow")
        new = await box.keep.deploy(flow(consumers=FILE))
        assert (new.version, new.workflow_id != old.workflow_id) == ("1.0", True)
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
        assert fake.texts == ["a"]
        assert (await box.keep.workflow(old.workflow_id)).status == "archived"


async def test_what_a_person_paused_no_deploy_resumes() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(flow(consumers=FILE))
        await box.keep.pause("flow")
        await box.publish("flow", "in", "a", payload="a")
        await box.keep.deploy(flow(producers=POLL, consumers=FILE), workflow="flow")
        await box.settle()
        assert (fake.texts, (await box.keep.workflow("flow")).status) == ([], "paused")


async def test_a_deploy_waits_for_the_run_that_is_under_way_which_ends_under_the_old_script() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(flow(consumers=FILE))
        call = fake.hang("put")
        await box.publish("flow", "in", "a", payload="a")
        await call.reached.wait()
        changed = flow(consumers=FILE.replace("put", "add"))
        with anyio.move_on_after(0.05) as too_early:
            await box.keep.deploy(changed, workflow="flow")
        assert too_early.cancelled_caught
        call.release()
        assert (await box.keep.deploy(changed, workflow="flow")).version == "1.1"
        await box.publish("flow", "in", "b", payload="b")
        await box.settle()
        assert fake.calls == ["put a", "add b"]


async def refused(box: TimedBox, script: str, **options: Any) -> list[tuple[Code, str]]:
    with pytest.raises(DeployRefused) as caught:
        await box.keep.deploy(script, **options)
    error = caught.value
    assert error.count == len(error.problems)
    assert all(problem.message in str(error) and problem.hint in str(error) for problem in error.problems)
    return [(problem.code, problem.handler or "") for problem in error.problems]


async def test_a_refused_deploy_lists_every_problem_and_changes_nothing(tmp_path: Path) -> None:
    fake, path = Fake(), tmp_path / "keep.db"
    async with world(fake, path=path) as box:
        await box.keep.deploy(flow(consumers=FILE))
        broken = flow(
            producers='poll: { schedule: { interval: "soon" }, publishes: ["else"], async handler() {} },',
            consumers="""
              a: Keep.consumer({ subscribe: ["in"], async mutate() {} }),
              b: Keep.consumer({ subscribe: ["in"], async prepare() { return nothing; } }),
              poll: Keep.consumer({ subscribe: [], async prepare() { return nothing; } }),
            """,
        )
        assert sorted(await refused(box, broken)) == sorted(
            [
                (Code.TOPIC_UNKNOWN, "producers.poll"),
                (Code.SCHEDULE_INVALID, "producers.poll"),
                (Code.PREPARE_MISSING, "consumers.a"),
                (Code.SUBSCRIBE_MISSING, "consumers.poll"),
                (Code.TOPIC_SHARED, "consumers.b"),
                (Code.HANDLER_NAME, "consumers.poll"),
            ]
        )
        assert await refused(box, "export default 1 +") == [(Code.LOAD_ERROR, "")]
        assert await versions(box, path) == ["1.0"]
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
        assert fake.texts == ["a"]


@pytest.mark.parametrize("cron", ["61 * * * *", "0 0 31 2 *"], ids=["no such minute", "no such day"])
async def test_a_cron_expression_that_cannot_come_true_is_refused_at_deploy(cron: str) -> None:
    script = flow(producers=f'poll: {{ schedule: {{ cron: "{cron}" }}, async handler() {{}} }},')
    async with world() as box:
        assert await refused(box, script) == [(Code.SCHEDULE_INVALID, "producers.poll")]
        assert await box.keep.workflows() == []


@pytest.mark.parametrize("script", [flow(consumers=FILE), TWO_PRODUCERS, DIGEST], ids=["none", "interval", "cron"])
async def test_a_time_zone_that_does_not_exist_is_refused_at_deploy_whatever_the_schedule(script: str) -> None:
    async with world(Fake(), Gmail()) as box:
        assert await refused(box, script, timezone="Mars/Olympus") == [(Code.SCHEDULE_INVALID, "")]
        assert await box.keep.workflows() == []


async def test_two_consumers_on_one_topic_are_refused() -> None:
    async with world(Fake()) as box:
        assert await refused(box, flow(consumers=FILE + FILE.replace("file:", "again:"))) == [
            (Code.TOPIC_SHARED, "consumers.again")
        ]


async def test_a_repaired_script_ends_the_maintenance_and_what_is_pending_goes_on_with_it() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(flow(consumers=FILE.replace('await ctx.peek("in")', "missing")))
        await box.publish("flow", "in", "a", payload="a")
        await box.settle()
        assert (await box.keep.workflow("flow")).maintenance
        failed = await box.last_run("flow", "file")
        assert (failed.status, fake.calls) == ("failed:logic", [])
        await box.publish("flow", "in", "b", payload="b")
        await box.advance(DAY)
        assert len(await box.runs("flow", "file")) == 1
        repaired = await box.keep.deploy(flow(consumers=FILE), by="ann", workflow="flow")
        await box.settle()
        assert repaired.version == "1.1"
        assert not (await box.keep.workflow("flow")).maintenance
        assert fake.texts == ["a", "b"]


async def test_the_same_broken_script_again_is_tried_again_and_repairs_nothing() -> None:
    async with world(Fake()) as box:
        broken = flow(consumers=FILE.replace('await ctx.peek("in")', "missing"))
        await box.keep.deploy(broken)
        await box.publish("flow", "in", "a")
        await box.settle()
        assert (await box.keep.deploy(broken)).version == "1.0"
        await box.settle()
        assert (await box.keep.workflow("flow")).maintenance
        assert len(await box.runs("flow", "file")) == 2


async def test_a_next_that_failed_is_repeated_by_the_repaired_script_and_its_mutation_is_not() -> None:
    fake = Fake()
    with_next = FILE.replace("  }),\n", "  async next(ctx, prepared, result) { NEXT },\n  }),\n")
    async with world(fake) as box:
        await box.keep.deploy(flow(consumers=with_next.replace("NEXT", "return missing;")))
        await box.publish("flow", "in", "a", payload="a")
        await box.publish("flow", "in", "b", payload="b")
        await box.settle()
        assert await box.statuses("flow", "in") == {"a": "reserved", "b": "pending"}
        await box.keep.deploy(flow(consumers=with_next.replace("NEXT", "return result.result.text;")), workflow="flow")
        await box.settle()
        assert await box.statuses("flow", "in") == {"a": "consumed", "b": "consumed"}
        assert [returned(run) for run in await box.runs("flow", "file")] == [None, "a", "b"]
        assert fake.texts == ["a", "b"]


async def test_what_the_old_script_would_not_take_the_new_one_is_shown_again() -> None:
    fake = Fake()
    patient = flow(consumers=FILE.replace("return event ?", "return false ?"))
    async with world(fake) as box:
        await box.keep.deploy(patient)
        await box.publish("flow", "in", "a", payload="a")
        await box.advance(DAY)
        assert fake.texts == []
        await box.keep.deploy(flow(consumers=FILE), workflow="flow")
        await box.settle()
        assert fake.texts == ["a"]


async def test_a_new_script_keeps_the_state_of_its_handlers_and_their_schedules() -> None:
    fake = Fake()
    async with world(fake) as box:
        await box.keep.deploy(flow(producers=POLL, consumers=FILE))
        await box.settle()
        await box.advance(MINUTE)
        await box.keep.deploy(flow(producers=POLL.replace("A poll", "Another poll"), consumers=FILE), workflow="flow")
        await box.settle()
        assert fake.texts == ["poll 0"], "it ran a minute ago, and is not due again"
        await box.advance(4 * MINUTE)
        assert fake.texts == ["poll 0", "poll 1"]


# Watching.


async def test_watching_shows_what_happens_from_now_on_and_everything_after_a_number() -> None:
    seen: list[JournalEntry] = []

    async def watch() -> None:
        async with aclosing(box.keep.watch("flow")) as entries:
            async for entry in entries:
                seen.append(entry)
                if entry.operation == "finish_session":
                    return

    async with world(Fake()) as box:
        await box.keep.deploy(flow(consumers=FILE))
        await box.settle()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            for _ in range(3):
                # Reads are answered in order: after these, the watcher knows where the journal ends.
                await box.keep.workflows()
            await box.publish("flow", "in", "a", payload="a")
        operations = [entry.operation for entry in seen]
        assert operations[0] == "publish_events"
        assert operations[-2:] == ["commit_consumer", "finish_session"]
        assert operations.index("create_mutation") < operations.index("apply_mutation")
        whole = await first_entries(box, "flow", 0, until="finish_session")
        assert whole[-len(seen) :] == seen
        assert whole[0].operation == "create_workflow"
        assert [entry.seq for entry in whole] == sorted({entry.seq for entry in whole})
        tail = await first_entries(box, "flow", whole[2].seq, until="finish_session")
        assert tail == whole[3:]


async def first_entries(box: TimedBox, workflow: str | None, after: int, *, until: str) -> list[JournalEntry]:
    found: list[JournalEntry] = []
    async with aclosing(box.keep.watch(workflow, after=after)) as entries:
        async for entry in entries:
            found.append(entry)
            if entry.operation == until:
                break
    return found


async def test_one_workflow_can_be_watched_or_all_of_them() -> None:
    async with world(Fake()) as box:
        one = await box.keep.deploy(flow("one", consumers=FILE))
        await box.publish("one", "in", "a", payload="a")
        await box.settle()
        two = await box.keep.deploy(flow("two", consumers=FILE))
        await box.publish("two", "in", "a", payload="a")
        await box.settle()
        of_two = await first_entries(box, "two", 0, until="finish_session")
        assert {entry.workflow_id for entry in of_two} == {two.workflow_id}
        everything = await first_entries(box, None, of_two[0].seq - 1, until="finish_session")
        assert everything == of_two
        everything = await first_entries(box, None, 0, until="finish_session")
        assert {entry.workflow_id for entry in everything} == {one.workflow_id}
        with pytest.raises(Rejected):
            await first_entries(box, "three", 0, until="")


@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "busy"])
async def test_watching_ends_with_the_runtime(busy: bool) -> None:
    ended: list[str] = []

    async def watch(name: str | None) -> None:
        async for _ in box.keep.watch(name, after=0):
            pass
        ended.append(name or "all")

    async with anyio.create_task_group() as tasks, world(Fake()) as box:
        await box.keep.deploy(flow(consumers=FILE))
        tasks.start_soon(watch, "flow")
        tasks.start_soon(watch, None)
        await anyio.wait_all_tasks_blocked()
        if busy:
            for number in range(5):
                await box.publish("flow", "in", f"e{number}", payload=f"e{number}")
    assert sorted(ended) == ["all", "flow"]


# Waiting, paging, coming back.


async def test_waiting_until_idle_waits_for_what_is_under_way_and_not_for_what_is_due_later() -> None:
    fake = Fake()
    async with world(fake) as box:
        with anyio.fail_after(5):
            await box.keep.wait_idle()
        call = fake.hang("put")
        await box.keep.deploy(flow(producers=POLL, consumers=FILE))
        await call.reached.wait()
        with anyio.move_on_after(0.01) as too_early:
            await box.keep.wait_idle()
        assert too_early.cancelled_caught
        call.release()
        with anyio.fail_after(5):
            await box.keep.wait_idle()
        assert fake.texts == ["poll 0"]
        box.time.advance(5 * MINUTE)
        with anyio.fail_after(5):
            await box.keep.wait_idle()
        assert fake.texts == ["poll 0", "poll 1"]


async def test_inputs_outputs_runs_and_events_can_be_read_page_by_page() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(flow(consumers=FILE))
        for number in range(7):
            await box.publish("flow", "in", f"e{number}", payload=f"e{number}")
        await box.settle()
        keep = box.keep
        inputs = await keep.inputs("flow")
        assert [each.message_id for each in inputs] == [f"e{number}" for number in reversed(range(7))]
        page = await keep.inputs("flow", limit=3)
        assert page == inputs[:3]
        assert await keep.inputs("flow", limit=3, before=page[-1].seq) == inputs[3:6]
        assert await keep.inputs("flow", limit=3, before=inputs[-1].seq) == []
        outputs = await keep.outputs("flow")
        assert [each.title for each in outputs] == [f"File e{number}" for number in reversed(range(7))]
        assert await keep.outputs("flow", limit=2) == outputs[:2]
        assert await keep.outputs("flow", limit=9, before=outputs[1].mutation_id) == outputs[2:]
        runs = await keep.runs("flow")
        assert await keep.runs("flow", limit=2, before=runs[0].id) == runs[1:3]
        assert await keep.runs("flow", before=runs[-1].id) == []
        events = await keep.events("flow", "in")
        assert await keep.events("flow", "in", limit=2, after=events[4].seq) == events[5:]


async def test_everything_is_there_again_after_the_file_is_closed_and_opened(tmp_path: Path) -> None:
    fake, path, time = Fake(), tmp_path / "keep.db", VirtualTime(START)
    async with world(fake, path=path, time=time) as box:
        await box.keep.deploy(flow(producers=POLL, consumers=FILE))
        await box.keep.deploy(CORRELATE.replace('"flow"', '"pairs"'))
        await box.publish("pairs", "order", "order-1", payload="1")
        await box.settle()
        before = await everything(box)
    time.advance(MINUTE)
    async with world(fake, path=path, time=time) as box:
        keep = box.keep
        await box.settle()
        assert await everything(box) == before
        assert (await box.keep.deploy(flow(producers=POLL, consumers=FILE))).version == "1.0"
        await box.publish("pairs", "payment", "payment-1", payload="1")
        await box.settle()
        await box.advance(4 * MINUTE)
        assert fake.texts == ["poll 0", "ship 1", "poll 1"]
        assert returned(await box.last_run("flow", "poll")) == 2
        assert await box.statuses("pairs", "order") == {"order-1": "consumed"}
        with looking(path) as q:
            assert reads.journal_end(q) > len(before["journal"])
    with pytest.raises(ActorStopped):
        await keep.pause("flow")


async def everything(box: TimedBox) -> dict[str, Any]:
    """All that a person can see."""
    seen: dict[str, Any] = {"workflows": await box.keep.workflows(), "journal": []}
    for name in ("flow", "pairs"):
        seen[f"runs of {name}"] = await box.keep.runs(name)
        seen[f"inputs of {name}"] = await box.keep.inputs(name)
        seen[f"outputs of {name}"] = await box.keep.outputs(name)
        for run in await box.keep.runs(name):
            seen[run.id] = await box.keep.explain(run.id)
            seen["journal"].extend(seen[run.id].journal)
    return seen
