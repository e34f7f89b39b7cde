"""The people of a story: they publish, pause, deploy, approve and judge at any moment, through `Keep` and nothing else.

Who is asked whether something happened looks at the world and says what is so; a liar says the opposite.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import anyio

from keep_actors import Grant, Keep, PermissionsNeeded
from keep_actors.api.escalation import Escalation
from keep_actors.api.verdicts import PersonVerdict
from keep_actors.host.fault_points import Point
from keep_actors.kernel import ActorDied, ActorStopped
from keep_actors.testing.life import Died
from keep_storage.errors import Rejected, StorageUnavailable
from keep_storage.model import WorkflowStatus
from keep_storage.operations import CreateWorkflow, Publish, PublishEvents, SkipEvent, Together
from tests.simulation import scripts
from tests.simulation.shell import NoAnswer

if TYPE_CHECKING:
    from tests.simulation.story import Story

Action = Callable[[Keep, random.Random], Awaitable[str]]

_PATIENCE_S = 2 * 86_400


class People:
    """Everybody who has a say."""

    def __init__(self, story: "Story", seed: int) -> None:
        self.on = True
        self._story = story
        self._seed = seed
        self._left = story.climate.actions_max
        self._published = 0
        self._waiting: Counter[str] = Counter()
        self.in_a_hurry: dict[Point, Action] = {
            Point.INVOKED: self._publish,
            Point.RECORD: self._interfere,
            Point.RECORDED: self._meddle,
            Point.CHECK: self._meddle,
        }
        """What somebody may do the very moment a handler has looked, a call is to be recorded or is made, a connector
        is asked."""

    @property
    def still_waiting(self) -> str:
        """Who has asked for something and not been answered; empty if nobody."""
        return ", ".join(f"somebody waits for {name}" for name, count in self._waiting.items() if count)

    async def live(self, number: int) -> None:
        """One person: waits, does something, waits."""
        rng = random.Random(f"{self._seed}:person:{number}")
        while True:
            await anyio.sleep(rng.expovariate(1 / 60))
            # Drawn before it is known whether anything is done: what is taken away does not shift the rest.
            own = random.Random(rng.getrandbits(64))
            if not self.on:
                return
            async with anyio.create_task_group() as at_once:
                for _ in range(own.choice([1, 1, 1, 3, 5])):
                    if self._left > 0 and self._story.keep is not None:
                        self._left -= 1
                        at_once.start_soon(self._act, self._story.keep, random.Random(own.getrandbits(64)))

    async def do(self, action: Action, keep: Keep, rng: random.Random) -> None:
        """Do this now."""
        await self.attempt(action.__name__.strip("_"), partial(action, keep, rng))

    async def _act(self, keep: Keep, rng: random.Random) -> None:
        """Mostly what waits for a person; else anything. Over the control socket, if the climate has one."""
        by_shell = rng.random() < self._story.climate.shell
        if by_shell:
            self._story.trace.figures.by_shell += 1
            keep = self._story.shell(keep)
        waits = self._story.waits_for_people()
        if waits and rng.random() < 0.7:
            seen: dict[str, Action] = {
                "unknown": self._judge,
                "approval": self._answer,
                "error": self._clear,
                "maintenance": self._mend,
                "paused": self._go_on,
            }
            await self.do(seen[rng.choice(waits)], keep, rng)
            return
        actions = self._actions()
        [action] = rng.choices([each for each, _ in actions], [weight for _, weight in actions])
        await self.do(action, keep, rng)

    def _actions(self) -> list[tuple[Action, int]]:
        climate = self._story.climate
        return [
            (self._publish, 25),
            (self._swap, 6),
            (self._clear, 2),
            (self._pause, 5),
            (self._resume, 2),
            (self._run_now, 4),
            (self._skip_event, 7),
            (self._deploy, 5),
            (self._roll_back, 2),
            (self._item, 4),
            (self._meddle, 4),
            (self._stop_run, 5),
            (self._unarchive, 12 if climate.archives else 0),
            (self._revoke, 6 if climate.revokes else 0),
            (self._give, 4 if climate.revokes else 0),
            (self._set_clock, 5 if climate.clock_jumps else 0),
            (self._restart, 2),
            (self._archive, 12 if climate.archives else 0),
            (self._overreach, 3),
        ]

    async def attempt(self, name: str, work: Callable[[], Awaitable[str]]) -> str:
        """Do something. What people must expect is noted; anything else is a bug."""
        story = self._story
        self._waiting[name] += 1
        before, failures = story.deaths, story.trace.figures.storage_failures
        try:
            with anyio.fail_after(_PATIENCE_S):
                said = await work()
        except (Rejected, PermissionsNeeded) as error:
            said = f"refused: {getattr(error, 'reason', 'permissions')}"
        except (ActorDied, ActorStopped) as error:
            said = f"{type(error).__name__}"
            if story.deaths == before and not story.is_ending:
                story.oracle.wrong(f"{name} was answered with {said}, and nobody had died")
        except NoAnswer as error:
            said = f"{type(error).__name__}"
            nothing_failed = (story.deaths, story.trace.figures.storage_failures) == (before, failures)
            if nothing_failed and not story.is_ending:
                story.oracle.wrong(f"{name} over the socket was not answered ({error}), and nothing had failed")
        except (StorageUnavailable, Died) as error:
            said = f"{type(error).__name__}"
        except TimeoutError:
            story.oracle.wrong(f"nobody answered {name}")
            said = "no answer"
        finally:
            self._waiting[name] -= 1
        if said:
            story.trace.figures.actions += 1
            story.trace.note("", "person", name, said)
        return said

    # What they do.

    async def _publish(self, keep: Keep, rng: random.Random) -> str:
        flow = rng.choice(self._story.flows)
        # Sometimes one that is there already: that is the same event.
        number = rng.randrange(max(self._published, 1)) if rng.random() < 0.2 else self._published
        self._published = max(self._published, number + 1)
        message_id = f"x{number}"
        payload = {"n": number, "poison": rng.random() < 0.1, "k": rng.choice("ab")}
        found = await keep.workflow(flow)
        [event] = await keep.publish(found.id, "t0", message_id=message_id, title=message_id, payload=payload)
        self._story.oracle.was_told(found.id, "t0", message_id)
        return f"{flow} {message_id} is {event.status}"

    async def _swap(self, keep: Keep, rng: random.Random) -> str:
        """Publish one event, and while a consumer looks for it skip it and publish another."""
        flow, first, second = rng.choice(self._story.flows), f"s{self._published}", f"s{self._published + 1}"
        self._published += 2
        found = await keep.workflow(flow)

        async def publish(message_id: str) -> str:
            payload = {"n": self._published, "poison": False, "k": "a"}
            await keep.publish(found.id, "t0", message_id=message_id, title=message_id, payload=payload)
            self._story.oracle.was_told(found.id, "t0", message_id)
            return f"{flow} {message_id}"

        async def skip() -> str:
            await keep.skip_event(found.id, "t0", first, by="ann")
            return f"{flow} {first} skipped"

        async def after(seconds: float, work: Callable[[], Awaitable[str]]) -> None:
            await anyio.sleep(seconds)
            if self._story.keep is keep:
                await self.attempt("swap", work)

        said = await publish(first)
        async with anyio.create_task_group() as at_once:
            at_once.start_soon(after, rng.choice([0, 0.001, 0.3]), skip)
            at_once.start_soon(after, rng.choice([0, 0.4, 1, 5]), partial(publish, second))
        return said

    async def _judge(self, keep: Keep, rng: random.Random) -> str:
        unknowns = [each for each in await keep.unknowns() if each.verdicts]
        return await self.judge(keep, rng.choice(unknowns), rng) if unknowns else ""

    async def judge(self, keep: Keep, asked: Escalation, rng: random.Random) -> str:
        """Say what became of a call, in one of the ways there are."""
        story, drawn = self._story, rng.random()
        verdicts = [each.verdict for each in asked.verdicts]
        if drawn < 0.12:
            await self._say(keep, asked, "skip")
            return f"{story.trace.short(asked.mutation_id)} skip"
        if drawn < 0.25 and "try_again" in verdicts:
            await self._say(keep, asked, "try_again")
            return f"{story.trace.short(asked.mutation_id)} try again"
        truth = story.truth_of(asked.mutation_id)
        happened, lie = truth is not None, story.climate.lies and drawn > 0.8
        if lie:
            happened = not happened
            story.oracle.lied(asked.mutation_id, "happened" if happened else "did_not_happen")
        if happened and truth is not None and drawn > 0.6:
            return await self._slip(keep, asked, {"id": truth.result.id})
        if happened:
            result = {"id": truth.result.id if truth is not None else "made up"}
            await self._say(keep, asked, "happened", result)
        else:
            await self._say(keep, asked, "did_not_happen")
        said = "happened" if happened else "did not happen"
        return f"{story.trace.short(asked.mutation_id)} {said}{' (a lie)' if lie else ''}"

    async def _slip(self, keep: Keep, asked: Escalation, result: object) -> str:
        """Say that it happened, with a slip of the pen; then put that right, if nobody has used it yet."""
        story, name = self._story, self._story.trace.short(asked.mutation_id)
        story.oracle.lied(asked.mutation_id, "happened")
        await self._say(keep, asked, "happened", {"id": "a slip"})
        try:
            await keep.amend(asked.mutation_id, result=result, by="ann", why="a slip", version=asked.version + 1)
        except Rejected:
            return f"{name} happened, with a slip"
        story.oracle.put_right(asked.mutation_id)
        return f"{name} happened, after a slip"

    async def _say(self, keep: Keep, asked: Escalation, verdict: PersonVerdict, result: object = None) -> None:
        said = await keep.resolve(asked.mutation_id, verdict, by="ann", result=result, version=asked.version)
        if said.version != asked.version + 1:
            self._story.oracle.wrong(f"a verdict on version {asked.version} was taken for {said.version - 1}")

    async def _meddle(self, keep: Keep, rng: random.Random) -> str:
        """Say what became of a call that nobody has asked about: it may still be on its way."""
        story, found = self._story, self._story.some_call(rng)
        if found is None:
            return ""
        mutation_id, version = found
        truth = story.truth_of(mutation_id)
        if truth is not None:
            result = {"id": truth.result.id}
            await keep.resolve(mutation_id, "happened", by="ann", result=result, version=version)
        else:
            await keep.resolve(mutation_id, "did_not_happen", by="ann", version=version)
        return f"{story.trace.short(mutation_id)} {'happened' if truth is not None else 'did not happen'}"

    async def _answer(self, keep: Keep, rng: random.Random) -> str:
        questions = await keep.approvals()
        return await self.answer(keep, rng.choice(questions).approval_id, rng) if questions else ""

    async def answer(self, keep: Keep, approval_id: str, rng: random.Random) -> str:
        """Allow a call, or not."""
        drawn, name = rng.random(), self._story.trace.short(approval_id)
        if drawn < 0.7:
            await keep.approve(approval_id, by="ann")
            return f"{name} approved"
        retry = drawn < 0.85
        if not retry:
            self._story.oracle.refuses(approval_id)
        await keep.reject(approval_id, by="ann", why="not this one", retry=retry)
        if not retry:
            self._story.oracle.refused(approval_id)
        return f"{name} rejected{', to be prepared anew' if retry else ''}"

    async def decide(self, keep: Keep, flow: str, rng: random.Random) -> str:
        """Skip or reprocess the items that need somebody."""
        said = []
        for item in await keep.items(flow, state="needs_attention"):
            said.append(await self._decide(keep, flow, item.item_id, skip=rng.random() < 0.5))
        return ", ".join(said)

    async def _decide(self, keep: Keep, flow: str, item: str, *, skip: bool) -> str:
        workflow_id = (await keep.workflow(flow)).id
        if skip:
            await keep.skip_item(workflow_id, item, by="ann")
            return f"{flow} {item} skipped"
        self._story.oracle.wants_again(workflow_id, item)
        await keep.reprocess_item(workflow_id, item, by="ann")
        self._story.oracle.has_it_again(workflow_id, item)
        return f"{flow} {item} again"

    async def _interfere(self, keep: Keep, rng: random.Random) -> str:
        """Stop what is about to be done, in one of the ways there are."""
        climate = self._story.climate
        ways = [self._pause, self._stop_run, *([self._revoke] if climate.revokes else [])]
        return await rng.choice(ways)(keep, rng)

    async def _stop_run(self, keep: Keep, rng: random.Random) -> str:
        flow = rng.choice(self._story.flows)
        return f"{flow} {self._story.trace.short(await keep.stop_run(flow, by='ann'))}"

    async def _unarchive(self, keep: Keep, rng: random.Random) -> str:
        """Bring one back, if there is one; who brings back a workflow of a story also looks after it."""
        story = self._story
        if not story.archived:
            return ""
        back = await keep.unarchive(rng.choice(story.archived).id, by="ann")
        story.archived = [each for each in story.archived if each.id != back.id]
        if back.name in story.specs and back.name not in story.flows:
            story.flows.append(back.name)
        return f"{back.name} as {back.status}"

    async def _clear(self, keep: Keep, rng: random.Random) -> str:
        stopped = [each.name for each in await keep.workflows() if each.error]
        return f"{(await keep.clear_error(rng.choice(stopped), by='ann')).name}" if stopped else ""

    async def _pause(self, keep: Keep, rng: random.Random) -> str:
        return f"{(await keep.pause(rng.choice(self._story.flows))).name}"

    async def _resume(self, keep: Keep, rng: random.Random) -> str:
        return f"{(await keep.resume(rng.choice(self._story.flows))).name}"

    async def _go_on(self, keep: Keep, rng: random.Random) -> str:
        paused = [each.name for each in await keep.workflows() if each.status is WorkflowStatus.PAUSED]
        return f"{(await keep.resume(rng.choice(paused))).name}" if paused else ""

    async def _run_now(self, keep: Keep, rng: random.Random) -> str:
        return f"{(await keep.run_now(rng.choice(self._story.flows))).name}"

    async def _skip_event(self, keep: Keep, rng: random.Random) -> str:
        flow = rng.choice(self._story.flows)
        # Mostly one that a consumer is about to take.
        topic = rng.choice(self._story.specs[flow].topics) if rng.random() < 0.3 else "t0"
        events = await keep.events(flow, topic)
        pending = [each for each in events if each.status == "pending"]
        events = pending or events
        if not events:
            return ""
        event = await keep.skip_event(flow, topic, rng.choice(events).message_id, by="ann")
        return f"{flow} {event.message_id}"

    async def _deploy(self, keep: Keep, rng: random.Random) -> str:
        return await self.deploy(keep, rng.choice(self._story.flows), rng, mended=False)

    async def _mend(self, keep: Keep, rng: random.Random) -> str:
        broken = [each.name for each in await keep.workflows() if each.maintenance]
        if not broken:
            return ""
        flow = rng.choice(broken)
        proposal = await keep.proposal(flow)
        if proposal is not None and rng.random() < 0.5:
            if rng.random() < 0.5:
                await keep.refuse_repair(flow, by="ann", why="no")
                return f"{flow} refused a repair"
            self._story.oracle.wanted(proposal.source)
            await keep.accept_repair(flow, proposal.version, by="ann")
            return f"{flow} accepted a repair"
        return await self.deploy(keep, flow, rng, mended=True)

    async def deploy(self, keep: Keep, flow: str, rng: random.Random, *, mended: bool) -> str:
        """The next version."""
        story = self._story
        story.specs[flow] = scripts.changed(rng, story.specs[flow], mended=mended)
        source, grants = scripts.source(story.specs[flow]), story.grants(flow)
        story.oracle.wanted(source)
        deployed = await keep.deploy(source, workflow=flow, grants=grants, major=rng.random() < 0.2)
        return f"{flow} {deployed.version}"

    async def _roll_back(self, keep: Keep, rng: random.Random) -> str:
        flow = rng.choice(self._story.flows)
        version = rng.choice(await keep.versions(flow))
        self._story.oracle.wanted(version.source)
        deployed = await keep.rollback(flow, f"{version.major}.{version.minor}")
        return f"{flow} {deployed.version}"

    async def _revoke(self, keep: Keep, rng: random.Random) -> str:
        flow, permission = rng.choice(self._story.flows), rng.choice(["shop.add", "shop.put", "shop.look"])
        await keep.revoke(flow, permission, by="ann")
        return f"{flow} {permission}"

    async def _give(self, keep: Keep, rng: random.Random) -> str:
        return await self.give(keep, rng.choice(self._story.flows))

    async def give(self, keep: Keep, flow: str) -> str:
        """Grant everything, again."""
        for each in self._story.grants(flow):
            await keep.grant(flow, each, by="ann")
        return flow

    async def _item(self, keep: Keep, rng: random.Random) -> str:
        flow = rng.choice(self._story.flows)
        item = rng.choice(self._story.chores[flow])
        return await self._decide(keep, flow, item, skip=rng.random() < 0.4)

    async def _archive(self, keep: Keep, rng: random.Random) -> str:
        """End a workflow: one that runs, or one that nobody ever started."""
        story, drawn = self._story, rng.random()
        if drawn < 0.4:
            spare = f"spare{rng.randrange(1000)}"
            source = scripts.source(scripts.make(random.Random(1), spare))
            await keep.deploy(source, grants="all", start=False)
            story.archived.append(await keep.archive(spare))
            return f"{spare} before it began"
        if drawn < 0.6:
            draft = await story.apply(CreateWorkflow(story.new_id("wf"), f"draft{rng.randrange(1000)}"))
            story.archived.append(await keep.archive(draft.id))
            return f"{draft.name} as a draft"
        flow = rng.choice(story.flows)
        if len(story.flows) == 1:
            return ""
        # Taken off the list first: two people at once would archive the last two.
        story.flows.remove(flow)
        try:
            archived = await keep.archive(flow)
        except BaseException:
            # Who was not answered may have got what he wanted.
            if not story.is_archived(flow):
                story.flows.append(flow)
            raise
        story.archived.append(archived)
        return f"{archived.name}"

    async def _overreach(self, keep: Keep, rng: random.Random) -> str:
        """Want two things at once, of which the second cannot be: neither may happen."""
        story, found = self._story, await keep.workflow(rng.choice(self._story.flows))
        event = Publish(story.new_id("evt"), "t0", f"half{rng.randrange(1000)}", "half")
        missing = SkipEvent(found.id, "t0", "none such", by="ann")
        await story.apply(Together((PublishEvents(found.id, (event,)), missing)))
        story.oracle.wrong("an event was skipped that nobody has published")
        return found.name

    async def _set_clock(self, _: Keep, rng: random.Random) -> str:
        ms = rng.choice([-3_600_000, -60_000, 30_000, 600_000, 7_200_000])
        self._story.set_clock(ms)
        return f"by {ms} ms"

    async def _restart(self, _: Keep, __: random.Random) -> str:
        await self._story.restart()
        return "in order"


def asking(permissions: tuple[str, ...]) -> list[str | Grant]:
    """Everything is granted; these are asked about first."""
    every = ["shop.feed", "shop.look", "shop.chores", "shop.add", "shop.put"]
    return [Grant(each, policy="ask") if each in permissions else each for each in every]
