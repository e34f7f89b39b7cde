"""Workers by key that passivate when told to, and then a storm of senders, crashes and cancellations."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from keep_actors.kernel import (
    Actor,
    ActorDied,
    ActorError,
    ActorStopped,
    AskTimeout,
    Directory,
    MailboxFull,
    Question,
    RestartPolicy,
    Supervisor,
    VirtualTime,
)
from tests.actors.test_time import settle
from tests.actors.workplace import Boom, Do, Workplace

pytestmark = pytest.mark.anyio

NEVER = RestartPolicy(restarts_max=0)


class Worker(Actor[Do]):
    def __init__(self, world: "Roster", key: str, restarts: int) -> None:
        super().__init__(key, mailbox_capacity=5)
        self.world = world
        self.restarts = restarts

    async def receive(self, message: Do) -> None:
        self.world.received.append((self.name, self.restarts, message.what))
        passivate = self.world.directory.passivate
        match message.what:
            case "crash":
                raise Boom
            case "hold":
                await self.world.freedom.wait()
            case "go":
                self.world.let_go.append(passivate(self.name, self))
            case "go and crash":
                passivate(self.name, self)
                raise Boom
            case "go and hold":
                passivate(self.name, self)
                await self.world.freedom.wait()
            case "go and come":
                passivate(self.name, self)
                assert not self.world.directory.is_active(self.name)
                self.world.directory.tell(self.name, Do("again"))
            case "go twice":
                passivate(self.name, self)
                passivate(self.name, self)
            case "hand over":
                passivate(self.name, self)
                self.world.directory.tell("another", Do("work"))
        message.answer(message.what)


class Roster(Workplace):
    """A workplace whose workers are in a directory."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go: list[bool] = []
        self.giving_up = anyio.Event()
        self.given_up: list[tuple[str, Exception]] = []
        self.directory = Directory(self.supervisor, self.make, policy=NEVER, given_up=self.give_up)

    def make(self, key: str, restarts: int) -> Worker:
        if key == "impossible":
            raise Boom
        self.made.append((key, restarts))
        return Worker(self, key, restarts)

    async def give_up(self, key: str, error: Exception) -> None:
        self.given_up.append((key, error))
        await self.giving_up.wait()

    def tell(self, key: str, *whats: str) -> None:
        for what in whats:
            self.directory.tell(key, Do(what))


@pytest.fixture(name="world")
async def _world() -> Roster:
    return Roster()


async def test_the_first_message_for_a_key_activates_its_actor_and_the_next_finds_it(world: Roster) -> None:
    async with world.running():
        world.tell("a", "1")
        assert await world.directory.ask("a", Do("2")) == "2"
        assert await world.directory.ask("b", Do("3")) == "3"

    assert world.made == [("a", 0), ("b", 0)]
    assert world.received == [("a", 0, "1"), ("a", 0, "2"), ("b", 0, "3")]


async def test_it_knows_who_is_active(world: Roster) -> None:
    async with world.running():
        assert (len(world.directory), world.directory.is_active("a")) == (0, False)
        world.tell("a", "work")
        assert (len(world.directory), world.directory.is_active("a")) == (1, True)
        assert not world.directory.is_active("b")


async def test_one_that_waits_for_a_restart_is_active(world: Roster) -> None:
    world.directory = Directory(world.supervisor, world.make)
    async with world.running():
        world.tell("a", "crash", "work")
        await settle()
        assert (len(world.directory), world.directory.is_active("a")) == (1, True)
        world.time.advance(100)
        await settle()

    assert world.received == [("a", 0, "crash"), ("a", 1, "work")]


async def test_what_is_sent_before_the_supervisor_runs_waits_for_it(world: Roster) -> None:
    world.tell("a", "work")
    async with world.running():
        assert world.received == [("a", 0, "work")]


async def test_an_ask_has_its_timeout(world: Roster) -> None:
    async with world.running():
        with pytest.raises(AskTimeout):
            await world.directory.ask("a", Do("hold"), timeout_ms=1)


async def test_a_full_mailbox_is_told_to_the_sender(world: Roster) -> None:
    async with world.running():
        world.tell("a", *["work"] * 5)
        with pytest.raises(MailboxFull):
            world.tell("a", "too much")


async def test_an_actor_that_passivates_is_let_go_and_the_next_message_activates_a_new_one(world: Roster) -> None:
    async with world.running():
        assert await world.directory.ask("a", Do("go")) == "go"
        assert not world.directory.is_active("a")
        await settle()
        assert await world.directory.ask("a", Do("work")) == "work"

    assert world.let_go == [True]
    assert world.made == [("a", 0), ("a", 0)]


async def test_an_actor_with_messages_waiting_is_not_let_go_and_goes_on(world: Roster) -> None:
    async with world.running():
        world.tell("a", "go", "work")
        await settle()
        assert world.directory.is_active("a")

    assert world.let_go == [False]
    assert world.made == [("a", 0)]
    assert world.received[-1] == ("a", 0, "work")


async def test_an_actor_is_removed_at_once_so_what_it_sends_to_its_own_key_activates_a_new_one(
    world: Roster,
) -> None:
    async with world.running():
        world.tell("a", "go and come")
        await settle()

        assert world.directory.is_active("a")
    assert world.received == [("a", 0, "go and come"), ("a", 0, "again")]
    assert world.made == [("a", 0), ("a", 0)]


async def test_a_new_actor_may_start_before_the_old_one_has_returned_and_is_not_disturbed_by_its_end(
    world: Roster,
) -> None:
    async with world.running():
        world.tell("a", "go and hold")
        await settle()
        assert await world.directory.ask("a", Do("work")) == "work"
        world.freedom.set()
        await settle()

        assert world.directory.is_active("a")
        assert await world.directory.ask("a", Do("work")) == "work"
    assert len(world.made) == 2


async def test_an_actor_that_crashes_after_it_passivated_is_not_made_again(world: Roster) -> None:
    async with world.running():
        with pytest.raises(ActorDied):
            await world.directory.ask("a", Do("go and crash"))
        await settle()

        assert not world.directory.is_active("a")
    assert world.made == [("a", 0)]
    assert world.given_up == []


async def test_an_actor_passivates_once(world: Roster) -> None:
    async with world.running():
        with pytest.raises(ActorDied) as died:
            await world.directory.ask("a", Do("go twice"))

    assert isinstance(died.value.__cause__, AssertionError)


async def test_an_actor_passivates_itself_and_nobody_else(world: Roster) -> None:
    async with world.running():
        world.tell("a", "work")
        with pytest.raises(AssertionError, match="itself"):
            world.directory.passivate("a", Worker(world, "a", 0))


async def test_waiting_for_an_empty_directory_returns_when_it_is_empty_and_is_a_checkpoint(world: Roster) -> None:
    await world.directory.wait_empty()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await world.directory.wait_empty()

    assert scope.cancelled_caught


async def test_waiting_for_an_empty_directory_ends_with_the_last_actor(world: Roster) -> None:
    async with world.running():
        world.tell("a", "go")
        world.tell("b", "hold", "go")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.directory.wait_empty)
            tasks.start_soon(world.directory.wait_empty)
            await settle()
            assert len(world.directory) == 1
            world.freedom.set()

        assert len(world.directory) == 0


async def test_a_directory_that_was_empty_for_less_than_a_turn_is_still_waited_for(world: Roster) -> None:
    returned: list[int] = []

    async def wait() -> None:
        await world.directory.wait_empty()
        returned.append(len(world.directory))

    async with world.running() as tasks:
        world.tell("a", "hand over")
        tasks.start_soon(wait)
        await settle()
        assert returned == []
        assert world.directory.is_active("another")
        world.tell("another", "go")
        await settle()

    assert returned == [0]


async def test_a_key_that_was_given_up_with_messages_waiting_starts_afresh(world: Roster) -> None:
    async with world.running():
        world.tell("a", "crash", "1")
        await settle()
        world.tell("a", "2")
        assert world.directory.is_active("a")
        world.giving_up.set()

        assert await world.directory.ask("a", Do("3")) == "3"
    ((key, error),) = world.given_up
    assert (key, type(error)) == ("a", Boom)
    assert world.received == [("a", 0, "crash"), ("a", 0, "1"), ("a", 0, "2"), ("a", 0, "3")]
    assert world.made == [("a", 0), ("a", 0)]


async def test_who_asked_while_a_key_was_given_up_is_answered_by_the_fresh_actor(world: Roster) -> None:
    answers: list[str] = []

    async def ask() -> None:
        answers.append(await world.directory.ask("a", Do("work")))

    async with world.running() as tasks:
        world.tell("a", "crash")
        await settle()
        tasks.start_soon(ask)
        await settle()
        assert answers == []
        world.giving_up.set()
        await settle()

    assert answers == ["work"]


async def test_a_key_that_starts_afresh_has_all_its_restarts_again(world: Roster) -> None:
    policy = RestartPolicy(restarts_max=1)
    world.directory = Directory(world.supervisor, world.make, policy=policy, given_up=world.give_up)
    world.giving_up.set()
    async with world.running():
        world.tell("a", "crash", "crash", "crash", "crash", "work")
        for _ in range(3):
            await settle()
            world.time.advance(100)
        await settle()

    assert [restarts for _, restarts, _ in world.received] == [0, 1, 0, 1, 0]
    assert len(world.given_up) == 2


async def test_a_key_that_was_given_up_with_nothing_waiting_is_removed(world: Roster) -> None:
    async with world.running():
        world.tell("a", "crash")
        await settle()
        assert world.directory.is_active("a")
        world.giving_up.set()
        await world.directory.wait_empty()
        await settle()
        assert world.made == [("a", 0)]

        assert await world.directory.ask("a", Do("work")) == "work"


async def test_a_key_that_never_gets_far_enough_to_take_a_message_does_not_stop_the_event_loop(
    world: Roster,
) -> None:
    class Stillborn(Worker):
        async def run(self) -> None:
            raise Boom

    async def give_up(key: str, error: Exception) -> None:
        world.given_up.append((key, error))
        assert len(world.given_up) < 1000, "nobody else got a turn"

    world.directory = Directory(
        world.supervisor, lambda key, restarts: Stillborn(world, key, restarts), policy=NEVER, given_up=give_up
    )
    async with world.running():
        world.tell("a", "work")
        for _ in range(20):
            await checkpoint()

    assert len(world.given_up) > 1
    assert world.escalated is None


async def test_without_anyone_to_give_a_key_up_its_supervisor_escalates(world: Roster) -> None:
    world.directory = Directory(world.supervisor, world.make, policy=NEVER)
    async with world.running():
        world.tell("calm", "work")
        world.tell("a", "crash")
        await world.directory.wait_empty()
        await settle()

    assert world.escalated is not None
    assert world.escalated.child == "a"


async def test_what_make_raises_is_raised_in_the_sender_and_nothing_is_activated(world: Roster) -> None:
    async with world.running():
        with pytest.raises(Boom):
            world.tell("impossible", "work")
        with pytest.raises(Boom):
            await world.directory.ask("impossible", Do("work"))

        assert len(world.directory) == 0


async def test_nothing_is_activated_once_the_supervisor_stops(world: Roster) -> None:
    async with world.running():
        world.tell("a", "work")
        await world.supervisor.stop(1000)
        with pytest.raises(ActorStopped, match="'b'"):
            world.tell("b", "work")
        with pytest.raises(ActorStopped, match="'a'"):
            await world.directory.ask("a", Do("work"))

        assert len(world.directory) == 0
    assert world.made == [("a", 0)]


async def test_a_directory_whose_supervisor_was_cancelled_is_empty(world: Roster) -> None:
    async with world.running():
        world.tell("a", "hold")
        world.tell("b", "crash")
        await settle()
        world.scope.cancel()
        await world.directory.wait_empty()

        assert len(world.directory) == 0


async def test_keys_that_are_idle_have_no_tasks(world: Roster) -> None:
    async with world.running():
        tasks_before = len(anyio.get_running_tasks())
        for number in range(10_000):
            world.tell(str(number), "go")
        assert len(world.directory) == 10_000
        await world.directory.wait_empty()
        await settle()

        assert len(anyio.get_running_tasks()) == tasks_before


@dataclass(frozen=True)
class Letter:
    """What a sender sends: to whom, what, how, and how many turns it then takes a rest."""

    key: str
    what: str
    how: str
    rest: int


class Sent(Question[None]):
    """A letter on its way. `outcome` is what its sender was told."""

    def __init__(self, sender: int, number: int, letter: Letter) -> None:
        self.sender = sender
        self.number = number
        self.letter = letter
        self.outcome: str | type[Exception] | None = None


class Stormy(Actor[Sent]):
    """Does what the letter says, and crashes now and then."""

    def __init__(self, storm: "Storm", key: str) -> None:
        super().__init__(key, mailbox_capacity=6)
        self.storm = storm
        self.kept: list[Sent] = []

    async def receive(self, message: Sent) -> None:
        assert self.name not in self.storm.busy, "two at once for one key"
        self.storm.busy.add(self.name)
        try:
            self.storm.received.append(message)
            await self.obey(message)
        finally:
            self.storm.busy.remove(self.name)

    async def obey(self, message: Sent) -> None:
        match message.letter.what:
            case "crash":
                raise Boom
            case "keep":
                self.kept.append(message)
                return
            case "slow":
                await checkpoint()
                await checkpoint()
            case "go" if not self.kept:
                self.storm.directory.passivate(self.name, self)
            case "go and crash" if not self.kept:
                self.storm.directory.passivate(self.name, self)
                raise Boom
            case _:
                while self.kept:
                    self.kept.pop().answer(None)
        message.answer(None)


class Calm(Actor[Sent]):
    async def receive(self, message: Sent) -> None:
        message.answer(None)


class Storm:
    """Many senders, three keys, restarts in a time that runs with the turns of the event loop, and some ending."""

    def __init__(self) -> None:
        self.time = VirtualTime(0)
        self.received: list[Sent] = []
        self.sent: list[Sent] = []
        self.busy: set[str] = set()
        self.calm_made = 0
        self.calm_answers = 0
        self.supervisor = Supervisor("storm", self.time)
        policy = RestartPolicy(restarts_max=2, within_ms=100, backoff_ms=10)
        self.directory = Directory(
            self.supervisor, lambda key, _: Stormy(self, key), policy=policy, given_up=self.give_up
        )
        self.calm = self.supervisor.start("calm", self.make_calm)
        self.scope = anyio.CancelScope()

    def make_calm(self, _: int) -> Calm:
        self.calm_made += 1
        return Calm("calm")

    async def give_up(self, _: str, error: Exception) -> None:
        assert isinstance(error, Boom)
        await checkpoint()
        await checkpoint()

    async def own(self) -> None:
        with self.scope:
            await self.supervisor.run()

    async def tick(self) -> None:
        while True:
            self.time.advance(5)
            await checkpoint()

    async def send(self, sender: int, letters: Sequence[Letter]) -> None:
        async with anyio.create_task_group() as asks:
            for number, letter in enumerate(letters):
                sent = Sent(sender, number, letter)
                self.sent.append(sent)
                match letter.how:
                    case "tell":
                        self.tell(sent)
                    case "ask":
                        await self.ask(sent)
                    case _:
                        asks.start_soon(self.ask, sent)
                for _ in range(letter.rest):
                    await checkpoint()

    def tell(self, sent: Sent) -> None:
        try:
            self.directory.tell(sent.letter.key, sent)
            sent.outcome = "accepted"
        except ActorError as error:
            sent.outcome = type(error)

    async def ask(self, sent: Sent) -> None:
        try:
            await self.directory.ask(sent.letter.key, sent)
            sent.outcome = "answered"
        except ActorError as error:
            sent.outcome = type(error)

    async def be_calm(self) -> None:
        for number in range(10):
            await self.calm.ask(Sent(-1, number, Letter("calm", "work", "ask", 0)))
            self.calm_answers += 1

    async def play(self, plan: Sequence[Sequence[Letter]]) -> None:
        """Let everybody send, and stop when all is sent. Returns when everybody has an answer, or fails."""
        with anyio.fail_after(60):
            async with anyio.create_task_group() as background:
                background.start_soon(self.own)
                background.start_soon(self.tick)
                async with anyio.create_task_group() as senders:
                    senders.start_soon(self.be_calm)
                    for sender, letters in enumerate(plan):
                        senders.start_soon(self.send, sender, letters)
                    while not self.all_is_sent(plan):
                        await checkpoint()
                    await self.supervisor.stop(1_000_000_000)
                background.cancel_scope.cancel()

    def all_is_sent(self, plan: Sequence[Sequence[Letter]]) -> bool:
        """Whether nobody has anything to send or waits for an answer, but for what an actor has kept."""
        waiting = [sent for sent in self.sent if sent.outcome is None and sent.letter.what != "keep"]
        return self.calm_answers == 10 and not waiting and len(self.sent) == sum(map(len, plan))

    async def play_until(self, plan: Sequence[Sequence[Letter]], turns: int, ending: str) -> None:
        """Let everybody send, and end the supervisor at some turn. Returns when everybody has an answer, or fails."""
        with anyio.fail_after(60):
            async with anyio.create_task_group() as background:
                background.start_soon(self.own)
                background.start_soon(self.tick)
                async with anyio.create_task_group() as senders:
                    for sender, letters in enumerate(plan):
                        senders.start_soon(self.send, sender, letters)
                    for _ in range(turns):
                        await checkpoint()
                    if ending == "stop":
                        await self.supervisor.stop(20)
                    else:
                        self.scope.cancel()
                background.cancel_scope.cancel()

    def assert_that_no_answer_lies(self) -> None:
        times = Counter(id(message) for message in self.received)
        for sent in self.sent:
            match sent.outcome:
                case "answered":
                    assert times[id(sent)] == 1
                    assert sent.letter.what != "crash"
                case "accepted":
                    assert times[id(sent)] <= 1
                case _ if sent.outcome is ActorDied:
                    assert times[id(sent)] == 1
                case _:
                    assert sent.outcome in (ActorStopped, MailboxFull)
                    assert times[id(sent)] == 0

    def assert_that_order_is_kept(self) -> None:
        last: dict[tuple[int, str], int] = {}
        for message in self.received:
            if message.letter.how != "ask and go on":
                line = (message.sender, message.letter.key)
                assert last.get(line, -1) < message.number
                last[line] = message.number


letters = st.builds(
    Letter,
    key=st.sampled_from("abc"),
    what=st.sampled_from(["work", "work", "slow", "crash", "crash", "go", "go", "go and crash"]),
    how=st.sampled_from(["tell", "ask"]),
    rest=st.integers(0, 3),
)
keepers = st.builds(
    Letter, key=st.sampled_from("abc"), what=st.just("keep"), how=st.just("ask and go on"), rest=st.integers(0, 3)
)
plans = st.lists(st.lists(st.one_of(letters, letters, letters, keepers), max_size=12), max_size=6)


@pytest.fixture
def _quiet() -> Iterator[None]:
    """The crashes of a storm are not worth their lines."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("_quiet")
@given(plan=plans)
@settings(max_examples=200, deadline=None)
async def test_in_a_storm_of_crashes_nothing_is_lost_or_done_twice_and_order_is_kept(plan: list[list[Letter]]) -> None:
    storm = Storm()

    await storm.play(plan)

    storm.assert_that_no_answer_lies()
    storm.assert_that_order_is_kept()
    processed = {id(message) for message in storm.received}
    for sent in storm.sent:
        if sent.outcome not in (MailboxFull, ActorStopped):
            assert id(sent) in processed
        if sent.outcome is ActorStopped:
            assert sent.letter.how == "ask and go on", "only these may come after the stop"
        if sent.letter.how == "ask" and sent.letter.what == "crash":
            assert sent.outcome in (ActorDied, MailboxFull)
        if sent.letter.how == "ask" and sent.letter.what in ("work", "slow", "go"):
            assert sent.outcome in ("answered", MailboxFull)
    assert (storm.calm_made, storm.calm_answers) == (1, 10)
    assert len(storm.directory) == 0


@pytest.mark.usefixtures("_quiet")
@given(plan=plans, turns=st.integers(0, 60), ending=st.sampled_from(["stop", "cancel"]))
@settings(max_examples=200, deadline=None)
async def test_whenever_the_supervisor_ends_no_ask_is_left_unanswered_and_no_answer_lies(
    plan: list[list[Letter]], turns: int, ending: str
) -> None:
    storm = Storm()

    await storm.play_until(plan, turns, ending)

    storm.assert_that_no_answer_lies()
    storm.assert_that_order_is_kept()
    assert len(storm.directory) == 0
