"""What happens in each test: the fifteen scenarios of the execution model, and those about approvals, reconciliation
and items. A scenario is data: what the handlers, the connector and the people do.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from keep_storage.model import FailureClass, HandlerKind, Phase, RunStatus
from keep_storage.operations import HandlerSpec
from tests.crash.services import Answer, Services


class Trouble(Enum):
    """How a handler fails, and until when."""

    LOGIC = (RunStatus.FAILED_LOGIC, FailureClass.LOGIC)  # until the script is repaired
    TRANSIENT = (RunStatus.PAUSED_TRANSIENT, FailureClass.TRANSIENT)  # once
    AUTH = (RunStatus.PAUSED_APPROVAL, FailureClass.AUTH)  # until a person has granted access
    INTERNAL = (RunStatus.FAILED_INTERNAL, FailureClass.INTERNAL)  # once, and a person must say "go on"


class Verdict(Enum):
    """What the person says to whom an uncertain mutation is shown."""

    THE_TRUTH = "looks outside, and says whether it happened"
    SKIP = "skip it"
    TRY_AGAIN = "mends the connector, and lets it check again"


class Decision(Enum):
    """What the person says who must approve a call."""

    APPROVE = "yes"
    REJECT_ONCE = "not so; and yes when asked again"
    REJECT = "no"


class Repair(Enum):
    """Who repairs the script, and how often it is tried."""

    BY_A_PERSON = "a person, at once"
    AUTOMATIC = "a machine, at the second attempt"
    PROPOSED = "a machine proposes; a person refuses the first proposal and takes the second"


@dataclass(frozen=True)
class Consumer:
    prepare: Trouble | None = None
    next: Trouble | None = None
    mutates: bool = True
    calls_something: bool = True
    batch: int = 1
    waits_for: int = 1
    """`prepare` reserves nothing while fewer events are pending."""
    wakes: bool = False
    """`prepare` asks to be woken at once whenever it reserves something."""
    first_phase: Phase = Phase.PREPARING


@dataclass(frozen=True)
class Connector:
    answers: tuple[Answer, ...] = ()
    """To the first calls about a target; all later ones go well."""
    reconciles: bool = False
    starts_up: bool = True
    asks_first: bool = False
    two_steps: bool = False
    """Record the call first, then mark it as sent, instead of both at once."""
    refusal: Trouble = Trouble.LOGIC
    per_day: int | None = None
    """Every call is counted before it is made, and there may be this many a day."""


@dataclass(frozen=True)
class Scenario:
    """What the handlers, the connector and the people do. All of it is data."""

    name: str
    deploys_in_steps: bool = False
    """The workflow, its script and its start are four commits instead of one."""
    mail: tuple[str, ...] = ("m1",)
    late_mail: tuple[str, ...] = ()
    """Arrives after the consumer has committed once."""
    producer: bool = False
    """The mail is found by a producer, instead of being published from outside."""
    poll: Trouble | None = None
    file: Consumer = field(default_factory=Consumer)
    announce: Consumer | None = None
    items: tuple[str, ...] = ()
    """A job works on these."""
    digest: Trouble | None = None
    """Inside the last item, after its mutation."""
    connector: Connector = field(default_factory=Connector)
    verdict: Verdict = Verdict.THE_TRUTH
    decision: Decision = Decision.APPROVE
    repair: Repair = Repair.BY_A_PERSON
    pauses: bool = False
    """Somebody pauses the workflow while a question is open."""
    reminds: bool = False
    """Nobody answers the first question about a call in time: it is asked again."""
    asks_on: bool = False
    """Nobody answers while there is something to begin beside the questions."""
    stops: bool = False
    """Somebody stops the first run that is about to make a call."""

    @property
    def is_about_mutations(self) -> bool:
        """What is special about it comes with a mutation or after one: not in `prepare`, nor in a producer."""
        before = (self.file.prepare, self.poll)
        makes_calls = bool(self.items) or (self.file.mutates and self.file.calls_something)
        return makes_calls and not any(before) and not self.producer and not self.late_mail

    @property
    def topics(self) -> tuple[str, ...]:
        return ("mail", "rows")

    def outside(self) -> Services:
        return Services(self.connector.answers, connector_is_up=self.connector.starts_up)

    def handlers(self) -> Iterator[HandlerSpec]:
        if self.producer:
            yield HandlerSpec("poll", HandlerKind.PRODUCER, schedule='{"interval":"5m"}', first_run_at=0)
        if self.mail or self.late_mail:
            yield HandlerSpec("file", HandlerKind.CONSUMER, subscribe=("mail",))
        if self.announce:
            yield HandlerSpec("announce", HandlerKind.CONSUMER, subscribe=("rows",))
        if self.items:
            yield HandlerSpec("digest", HandlerKind.JOB, schedule='{"cron":"0 8 * * *"}', first_run_at=0)


THE_FIFTEEN: Final = (
    Scenario("01 prepare fails by its logic", file=Consumer(prepare=Trouble.LOGIC)),
    Scenario("02 next fails by its logic", file=Consumer(next=Trouble.LOGIC)),
    Scenario("03 transient error in prepare", file=Consumer(prepare=Trouble.TRANSIENT)),
    Scenario("04 transient error in next", file=Consumer(next=Trouble.TRANSIENT)),
    Scenario("05 mutation applied", connector=Connector(two_steps=True)),
    Scenario("06 mutation fails for certain", connector=Connector((Answer.REFUSED,))),
    Scenario(
        "06 mutation fails for certain but a retry may help",
        connector=Connector((Answer.REFUSED,), refusal=Trouble.TRANSIENT),
    ),
    Scenario("07 outcome unknown and it did not happen", connector=Connector((Answer.LOST,))),
    Scenario("07 outcome unknown and it happened", connector=Connector((Answer.APPLIED_BUT_LOST,))),
    Scenario("07 outcome unknown and somebody pauses meanwhile", connector=Connector((Answer.LOST,)), pauses=True),
    Scenario("08 outcome unknown and a person skips", connector=Connector((Answer.LOST,)), verdict=Verdict.SKIP),
    Scenario("09 prepare reserves nothing", late_mail=("m2",), file=Consumer(waits_for=2, batch=2)),
    Scenario("09 woken with nothing pending", file=Consumer(wakes=True)),
    Scenario(
        "10 full consumer cycles",
        deploys_in_steps=True,
        mail=("m1", "m2"),
        file=Consumer(first_phase=Phase.PENDING),
    ),
    Scenario(
        "11 crash at any point of a consumer without a mutation", file=Consumer(mutates=False, next=Trouble.LOGIC)
    ),
    Scenario(
        "11 crash at any point of a mutate that calls nothing", file=Consumer(calls_something=False, next=Trouble.LOGIC)
    ),
    Scenario("12 producer succeeds", mail=("m1", "m2"), producer=True, file=Consumer(batch=2)),
    Scenario("13 producer fails by its logic", producer=True, poll=Trouble.LOGIC),
    Scenario("14 access denied in prepare", file=Consumer(prepare=Trouble.AUTH)),
    Scenario("14 access denied in mutate", connector=Connector((Answer.REFUSED,), refusal=Trouble.AUTH)),
    Scenario("14 access denied in next", file=Consumer(next=Trouble.AUTH)),
    Scenario("14 internal error in next", file=Consumer(next=Trouble.INTERNAL)),
    Scenario("15 the second consumer of a session fails in next", announce=Consumer(next=Trouble.LOGIC)),
)

APPROVALS: Final = (
    Scenario("2d approved", connector=Connector(asks_first=True)),
    Scenario(
        "2d sent back and approved when asked again",
        connector=Connector(asks_first=True),
        decision=Decision.REJECT_ONCE,
    ),
    Scenario("2d rejected", connector=Connector(asks_first=True), decision=Decision.REJECT),
    Scenario("2d asked again before it is approved", connector=Connector(asks_first=True), reminds=True),
    Scenario(
        "2d two questions at once and the first outcome is unknown",
        mail=("m1", "m2"),
        connector=Connector((Answer.APPLIED_BUT_LOST,), asks_first=True),
        asks_on=True,
    ),
    Scenario(
        "2d approved and the outcome is unknown", connector=Connector((Answer.APPLIED_BUT_LOST,), asks_first=True)
    ),
    Scenario(
        "2d approved and reconciled",
        connector=Connector((Answer.LOST,), asks_first=True, reconciles=True, starts_up=False),
        verdict=Verdict.TRY_AGAIN,
    ),
)

RECONCILIATION: Final = (
    Scenario("reconciled at once as applied", connector=Connector((Answer.APPLIED_BUT_LOST,), reconciles=True)),
    Scenario("reconciled at once as failed", connector=Connector((Answer.LOST,), reconciles=True)),
    Scenario(
        "reconciled after a person let it try again",
        connector=Connector((Answer.APPLIED_BUT_LOST,), reconciles=True, starts_up=False),
        verdict=Verdict.TRY_AGAIN,
    ),
    Scenario(
        "never reconciled and a person tells the truth",
        connector=Connector((Answer.LOST,), reconciles=True, starts_up=False),
    ),
)

ITEMS: Final = (
    Scenario("job with items", mail=(), items=("i1", "i2"), connector=Connector(two_steps=True)),
    Scenario("job that fails inside an item", mail=(), items=("i1", "i2"), digest=Trouble.LOGIC),
    Scenario(
        "job whose mutation is refused",
        mail=(),
        items=("i1",),
        connector=Connector((Answer.REFUSED,), refusal=Trouble.TRANSIENT),
    ),
    Scenario("job whose outcome is unknown", mail=(), items=("i1",), connector=Connector((Answer.APPLIED_BUT_LOST,))),
    Scenario(
        "job whose item a person skips",
        mail=(),
        items=("i1",),
        connector=Connector((Answer.LOST,)),
        verdict=Verdict.SKIP,
    ),
    Scenario("job whose mutation is approved", mail=(), items=("i1",), connector=Connector(asks_first=True)),
)

REPAIRS: Final = (
    Scenario(
        "prepare fails and the second attempt repairs it",
        file=Consumer(prepare=Trouble.LOGIC),
        repair=Repair.AUTOMATIC,
    ),
    Scenario("next fails and a proposal is refused", file=Consumer(next=Trouble.LOGIC), repair=Repair.PROPOSED),
    Scenario("producer fails and a proposal is refused", producer=True, poll=Trouble.LOGIC, repair=Repair.PROPOSED),
)

STOPS: Final = (
    Scenario("stopped before its call", stops=True),
    Scenario("job that is stopped before its call", mail=(), items=("i1",), stops=True),
)

LIMITS: Final = (
    Scenario("calls are counted before they are made", connector=Connector((Answer.LOST,), per_day=1_000)),
    Scenario("calls in items are counted", mail=(), items=("i1",), connector=Connector((Answer.LOST,), per_day=1_000)),
)

ALL: Final = THE_FIFTEEN + APPROVALS + RECONCILIATION + ITEMS + REPAIRS + STOPS + LIMITS
