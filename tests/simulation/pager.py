"""The sinks of a story: they hang, raise, give up and answer late; and the rules about who is told what, and when."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import anyio

from keep_actors.notices import GiveUp, Notice
from keep_actors.policy import Backoff

if TYPE_CHECKING:
    from tests.simulation.story import Story

SINKS: Final = ("pager", "mail")
TIMEOUT_MS: Final = 10_000

# Needs a person, and no open notice says so.
_UNTOLD: Final = """
SELECT 'approval', a.id FROM approvals a WHERE a.status = 'open' AND NOT EXISTS (
    SELECT 1 FROM notices n WHERE n.kind = 'approval' AND n.about = a.id AND n.settled_at IS NULL)
UNION ALL SELECT 'unknown outcome', m.id FROM mutations m WHERE m.status = 'indeterminate' AND NOT EXISTS (
    SELECT 1 FROM notices n WHERE n.kind = 'unknown' AND n.about = m.id AND n.settled_at IS NULL)
UNION ALL SELECT 'error', w.id FROM workflows w WHERE w.error <> '' AND w.status <> 'archived' AND NOT EXISTS (
    SELECT 1 FROM notices n WHERE n.workflow_id = w.id AND n.settled_at IS NULL)
LIMIT 1"""

# Was to be delivered a while ago.
_OVERDUE: Final = """
SELECT d.notice_id, d.sink FROM deliveries d WHERE d.status = 'waiting' AND d.next_attempt_at < ? LIMIT 1"""

# Open notices, and settled ones of which a sink knows only the first half.
_LEFT_OPEN: Final = """
SELECT n.id, n.kind || ' is over, and its notice is open' FROM notices n WHERE n.settled_at IS NULL
UNION ALL SELECT n.id, d.sink || ' was told that it needs a person, and not that it is settled' FROM notices n
JOIN deliveries d ON d.notice_id = n.id AND d.says = 'needs_person' AND d.status = 'delivered'
WHERE NOT EXISTS (SELECT 1 FROM deliveries s WHERE s.notice_id = n.id AND s.sink = d.sink AND s.says = 'settled')
LIMIT 1"""


class Pager:
    """A sink that obeys the weather. It outlives processes, and remembers every notice that it took."""

    timeout_ms = TIMEOUT_MS
    backoff = Backoff(first_ms=5_000, cap_ms=60_000, attempts_max=36)

    def __init__(self, name: str, seed: int, arrives: Callable[["Pager", Notice], None]) -> None:
        self.name = name
        self.on = True
        """True while it may misbehave."""
        self.taken: dict[str, int] = {}
        """Notices that it returned for, by id, and the process that had sent them."""
        self.process = 0
        self._arrives = arrives
        self._rng = random.Random(f"{seed}:{name}")

    async def deliver(self, notice: Notice) -> None:
        process, mood, latency_s = self.process, self._rng.random(), self._rng.choice([0, 0, 0.5, 9, 12])
        self._arrives(self, notice)
        if self.on and mood < 0.15:
            raise OSError("simulated: no connection")
        if self.on and mood < 0.3:
            await anyio.sleep(10 * TIMEOUT_MS)
        if self.on and mood < 0.33:
            raise GiveUp("simulated: unknown number")
        await anyio.sleep(latency_s if self.on else 0)
        self.taken[notice.id] = process


class Pagers:
    """All sinks of a story, and what must be true of them."""

    def __init__(self, story: "Story", seed: int) -> None:
        self.sinks = tuple(Pager(name, seed, self._arrives) for name in SINKS) if story.climate.notices else ()
        self._story = story
        self._rows = story.rows
        self._wrong = story.oracle.wrong

    def starts(self, process: int) -> None:
        """A process begins."""
        for each in self.sinks:
            each.process = process

    def calm(self) -> None:
        """From now on every sink does well."""
        for each in self.sinks:
            each.on = False

    def _arrives(self, pager: Pager, notice: Notice) -> None:
        story = self._story
        story.look_at_the_clock()
        story.trace.figures.notices += 1
        name = story.trace.short(notice.matter)
        story.trace.note(story.trace.short(notice.workflow_id), "notice", name, f"{pager.name} {notice.says}")
        if pager.taken.get(notice.id) == pager.process:
            self._wrong(f"{pager.name} has taken {name} and is told once more that it {notice.says}")
        if notice.says != "settled":
            return
        [(first,)] = self._rows(
            "SELECT status FROM deliveries WHERE notice_id = ? AND sink = ? AND says = 'needs_person'",
            notice.matter,
            pager.name,
        )
        if first == "waiting":
            self._wrong(f"{pager.name} is told that {name} is settled before it was told of it")
        if self._rows("SELECT 1 FROM approvals WHERE id = ? AND status = 'open'", notice.about):
            self._wrong(f"{pager.name} is told that {name} is settled, and it is an open question")

    def check(self, then: int) -> None:
        """In calm: every matter that needs a person is told, and nothing that was due by then is left."""
        if not self.sinks:
            return
        # Looks are a moment apart by the clock: one that is set back has them wait.
        for kind, what in self._rows(_UNTOLD) if not self._story.climate.clock_jumps else []:
            self._wrong(f"{self._story.trace.short(what)} needs a person ({kind}), and nobody is told")
        for notice_id, sink in self._rows(_OVERDUE, then):
            self._wrong(f"{sink} should have been told of {self._story.trace.short(notice_id)}")
        for pager in self.sinks:
            for notice_id, says in self._rows(
                "SELECT notice_id, says FROM deliveries WHERE sink = ? AND status = 'delivered'", pager.name
            ):
                if f"{notice_id}-{says}" not in pager.taken:
                    name = self._story.trace.short(notice_id)
                    self._wrong(f"{pager.name} is down as told that {name} {says}, and never took that")

    def at_rest(self) -> None:
        """Nothing needs a person any more, and everyone who was told that something does knows that it does not."""
        if self.sinks and not self._story.climate.clock_jumps:
            for notice_id, how in self._rows(_LEFT_OPEN):
                self._wrong(f"{self._story.trace.short(notice_id)}: {how}")
