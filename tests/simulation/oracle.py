"""What must be true: after every transaction, at every call, at every effect, and when everything has come to rest.

It believes the world, not the runtime. A person who lies is written down before he does, and what follows from the lie
is his.
"""

from collections import Counter, defaultdict
from typing import Any, Final

import msgspec

from keep_actors.connectors import MutationCall
from keep_actors.testing import Effect, Outside
from keep_storage import invariants
from keep_storage.statements import invariants as promises
from tests.simulation import scripts
from tests.simulation.disk import Disk
from tests.simulation.trace import Trace

_SHALLOW: Final = sum(1 for each in promises().values() if each.mark != "deep")

_UNCERTAIN: Final = ("needs_reconcile", "indeterminate")

# Events of a run that has not committed are in no topic: what a run publishes is there with its commit.
_PUBLISHED_TOO_SOON: Final = """
SELECT e.message_id FROM events e JOIN runs r ON r.id = e.created_by_run_id WHERE r.status <> 'committed'"""

# What follows from an event is there only once that event is consumed or skipped: `c0:x` follows from `x`.
_FOLLOWS_TOO_SOON: Final = """
SELECT e.message_id FROM events e JOIN topics t ON t.id = e.topic_id
JOIN topics b ON b.workflow_id = t.workflow_id AND b.consumer = substr(e.message_id, 1, instr(e.message_id, ':') - 1)
JOIN events s ON s.topic_id = b.id AND s.message_id = substr(e.message_id, instr(e.message_id, ':') + 1)
WHERE s.status NOT IN ('consumed', 'skipped')"""

_ANYTHING_BROKEN: Final = " UNION ALL ".join(
    f"SELECT 1 WHERE EXISTS ({sql})"  # our own text
    for sql in [
        _PUBLISHED_TOO_SOON,
        _FOLLOWS_TOO_SOON,
        *(each.sql for each in promises().values() if each.mark != "deep"),
    ]
)
"""All promises that are checked at every transaction, asked at once. Which one it was is asked again by name."""

_PENDING: Final = """
SELECT t.workflow_id, t.consumer, e.message_id FROM events e JOIN topics t ON t.id = e.topic_id
WHERE e.status = 'pending' AND t.consumer IS NOT NULL"""

Place = tuple[str, str, str, str]
"""Where an effect belongs: workflow, handler, method, and the event or item behind it."""


class Oracle:
    """Watches one story. `violation` is the first thing that was wrong."""

    def __init__(self, trace: Trace, world: Outside) -> None:
        self.violation = ""
        self.disk: Disk | None = None
        self._trace = trace
        self._world = world
        self._done: defaultdict[Place, list[str]] = defaultdict(list)
        """The keys of the effects at each place."""
        self._excused: Counter[Place] = Counter()
        """How many more effects than one a place may have: because of what a person said or wanted."""
        self._lies: dict[str, str] = {}
        """What a person said falsely, by mutation."""
        self._doubted: set[str] = set()
        """Mutations of which nobody knew what became of them, at some time."""
        self._told: list[tuple[str, str, str]] = []
        """Events that somebody was told are there: workflow, topic, message id."""
        self._checks = 0

    def wrong(self, what: str) -> None:
        """A promise is broken. Only the first one counts."""
        if not self.violation:
            self.violation = what
            self._trace.note("", "VIOLATION", "", what)

    def _rows(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        assert self.disk is not None, "the story has begun"
        return self.disk.rows(sql, *params)

    # What people do.

    def was_told(self, workflow_id: str, topic: str, message_id: str) -> None:
        """Somebody's publish was answered: the event is there for good."""
        self._told.append((workflow_id, topic, message_id))

    def lied(self, mutation_id: str, verdict: str) -> None:
        """A person is about to say what is not so."""
        self._lies[mutation_id] = verdict
        self._trace.figures.lies += 1
        if verdict == "did_not_happen":
            for place in self._places_of(mutation_id):
                self._excused[place] += 1

    def wants_again(self, workflow_id: str, item_id: str) -> None:
        """A person wants an item processed anew."""
        for method in ("add", "put"):
            self._excused[(workflow_id, "sweep", f"shop.{method}", item_id)] += 1

    def _places_of(self, mutation_id: str) -> list[Place]:
        [(workflow_id, connector, method, params)] = self._rows(
            "SELECT workflow_id, connector, method, params FROM mutations WHERE id = ?", mutation_id
        )
        given = msgspec.json.decode(params)
        return [(workflow_id, given["by"], f"{connector}.{method}", each) for each in given["ids"]]

    # What happens outside.

    def arrives(self, call: MutationCall) -> None:
        """A call has reached the other side: the ledger must have it as sent."""
        self._trace.note(self._trace.short(call.workflow_id), "call", self._trace.short(call.mutation_id))
        found = self._rows("SELECT status FROM mutations WHERE idempotency_key = ?", call.idempotency_key)
        if found != [("in_flight",)]:
            self.wrong(f"a call was made that the ledger has as {found}, not as in_flight")
        self._check_order(call)

    def _check_order(self, call: MutationCall) -> None:
        """Beside a call whose outcome nobody knows, nothing is done about the same thing."""
        source = self._rows(
            "SELECT v.source FROM runs r JOIN script_versions v ON v.id = r.version_id WHERE r.id = ?", call.run_id
        )[0][0]
        by = call.params["by"]
        if not any(each.ordered for each in scripts.spec_of(source).consumers if each.name == by):
            return
        rows = self._rows(
            "SELECT 1 FROM mutations d JOIN reservations dh ON dh.run_id = d.run_id "
            "JOIN events de ON de.id = dh.event_id JOIN runs dr ON dr.id = d.run_id "
            "JOIN reservations h ON h.run_id = ? JOIN events e ON e.id = h.event_id "
            "WHERE d.workflow_id = ? AND d.id <> ? AND d.status IN ('needs_reconcile', 'indeterminate') "
            "AND dr.handler = ? AND json_extract(de.payload, '$.k') = json_extract(e.payload, '$.k')",
            call.run_id,
            call.workflow_id,
            call.mutation_id,
            by,
        )
        if rows:
            self.wrong(f"a call of {by} overtakes one with the same key, of which nobody knows what became")

    def happens(self, effect: Effect) -> None:
        """Something has an effect: for the first time."""
        figures, short = self._trace.figures, self._trace.short
        figures.effects += 1
        self._trace.note(short(effect.workflow_id), "effect", effect.result.id, ",".join(effect.params["ids"]))
        found = self._rows("SELECT id, status FROM mutations WHERE idempotency_key = ?", effect.key)
        if not found:
            self.wrong(f"{effect.method} had an effect that no line of the ledger is about")
            return
        [(mutation_id, status)] = found
        if status not in ("in_flight", *_UNCERTAIN) and mutation_id not in self._lies:
            by = self._rows("SELECT resolved_by FROM mutations WHERE id = ?", mutation_id)[0][0]
            # People know what is on its way; nobody else may speak before it is there.
            if by not in ("user_skip", "user_assert_applied"):
                self.wrong(f"{effect.method} had its effect when the ledger had it as {status}")
        for message_id in effect.params["ids"]:
            place = (effect.workflow_id, effect.params["by"], effect.method, message_id)
            self._done[place].append(effect.key)
            if len(self._done[place]) > 1 + self._excused[place]:
                self.wrong(f"{effect.method} happened twice for {message_id!r}")

    # What is written.

    def committed(self) -> None:
        """A transaction is durable."""
        assert self.disk is not None, "the story has begun"
        figures = self._trace.figures
        figures.commits += 1
        for move in self.disk.moves():
            if why := self._trace.moved(*move):
                self.wrong(why)
            if move.kind == "mutation" and move.before == "in_flight" and move.after in _UNCERTAIN:
                figures.uncertain += 1
                self._doubted.add(move.what)
        if self._rows(_ANYTHING_BROKEN):
            broken = invariants.check(self.disk.queries(), deep=False)
            self.wrong(str(broken[0]) if broken else "an event is there before the run that published it committed")
        figures.invariants += _SHALLOW + 3
        self._check_pending()

    def _check_pending(self) -> None:
        if not self._done:
            return
        for workflow_id, consumer, message_id in self._rows(_PENDING):
            for method in ("shop.add", "shop.put"):
                place = (workflow_id, consumer, method, message_id)
                if len(self._done.get(place, ())) > self._excused[place]:
                    self.wrong(f"{message_id!r} is pending, and what it stands for has happened")

    # At the end.

    def at_rest(self) -> None:
        """Everything has come to rest: what is there must add up."""
        assert self.disk is not None, "the story has begun"
        figures = self._trace.figures
        for effect in self._world.coming:
            # A clock that was set back keeps it from arriving; it will.
            self.happens(effect)
        broken = invariants.check(self.disk.queries(), deep=True)
        figures.invariants += len(promises())
        if broken:
            self.wrong(str(broken[0]))
        self._check_nothing_is_lost()
        self._check_the_ledger()
        self._check_runs()
        self._check_effects_of_consumed()
        self._check_journal()
        figures.runs += self._rows("SELECT COUNT(*) FROM runs")[0][0]
        for mutation_id in sorted(self._doubted):
            status, by = self._rows("SELECT status, resolved_by FROM mutations WHERE id = ?", mutation_id)[0]
            reason = f"{status} by {by}" if by else f"{status}, an open question"
            figures.settled_by[reason] = figures.settled_by.get(reason, 0) + 1

    def _check_nothing_is_lost(self) -> None:
        for workflow_id, topic, message_id in self._told:
            if not self._event(workflow_id, topic, message_id):
                self.wrong(f"somebody was told that {message_id!r} is in {topic}, and it is not")

    def _event(self, workflow_id: str, topic: str, message_id: str) -> tuple[Any, ...] | None:
        found = self._rows(
            "SELECT e.id, e.status, e.payload, e.created_by_run_id FROM events e JOIN topics t ON t.id = e.topic_id "
            "WHERE t.workflow_id = ? AND t.name = ? AND e.message_id = ?",
            workflow_id,
            topic,
            message_id,
        )
        return found[0] if found else None

    def _check_the_ledger(self) -> None:
        known = set()
        for mutation_id, key, status, by, result in self._rows(
            "SELECT id, idempotency_key, status, resolved_by, result FROM mutations"
        ):
            known.add(key)
            effect, lie = self._world.truth(key), self._lies.get(mutation_id)
            name = self._trace.short(mutation_id)
            if status == "applied" and lie is None:
                if effect is None:
                    self.wrong(f"the ledger has {name} as applied by {by}, and nothing happened")
                elif msgspec.json.decode(result) != {"id": effect.result.id}:
                    self.wrong(f"the ledger has {result} as the result of {name}; it was {effect.result.id}")
            if status == "failed" and effect is not None and lie is None and by != "user_skip":
                self.wrong(f"the ledger has {name} as failed by {by}, and it happened")
        for effect in self._world.effects:
            if effect.key not in known:
                self.wrong(f"{effect.method} had an effect that no line of the ledger is about")

    def _check_runs(self) -> None:
        """What `next` was told and what it left: the same in the first run and in every retry."""
        for run_id, handler, source, prepared, outcome, result, state in self._rows(
            "SELECT r.id, r.handler, v.source, r.prepare_result, r.mutation_outcome, r.mutation_result, r.output_state "
            "FROM runs r JOIN script_versions v ON v.id = r.version_id "
            "WHERE r.kind = 'consumer' AND r.status = 'committed'"
        ):
            consumer = next(each for each in scripts.spec_of(source).consumers if each.name == handler)
            data = msgspec.json.decode(prepared)["data"]
            told = {"success": "applied", "skipped": "skipped", "": "none"}.get(outcome, outcome)
            got = msgspec.json.decode(result)["id"] if told == "applied" else ""
            left = {"ids": data["ids"], "told": told, "got": got} if consumer.has_next else None
            if (msgspec.json.decode(state) if state is not None else None) != left:
                self.wrong(f"`next` of {self._trace.short(run_id)} left {state}, and should have left {left}")
            if consumer.to:
                self._check_published(run_id, consumer, data, told, got)

    def _check_published(self, run_id: str, consumer: scripts.Consumer, data: Any, told: str, got: str) -> None:
        [(workflow_id,)] = self._rows("SELECT workflow_id FROM runs WHERE id = ?", run_id)
        for message_id in data["ids"]:
            found = self._event(workflow_id, consumer.to, f"{consumer.name}:{message_id}")
            if found is None:
                self.wrong(f"{self._trace.short(run_id)} committed, and its event about {message_id!r} is not there")
                continue
            payload = msgspec.json.decode(found[2])
            if (payload["told"], payload["got"]) != (told, got):
                self.wrong(f"the event about {message_id!r} says {payload}; `next` was told {told} {got}")

    def _check_effects_of_consumed(self) -> None:
        """What was consumed has had its effect, if the script that consumed it wanted one."""
        for workflow_id, handler, message_id, source, prepared, outcome, root in self._rows(
            "SELECT r.workflow_id, r.handler, e.message_id, v.source, r.prepare_result, r.mutation_outcome, "
            "COALESCE(m.id, '') FROM events e JOIN reservations h ON h.event_id = e.id "
            "JOIN runs r ON r.id = h.run_id AND r.status = 'committed' "
            "JOIN script_versions v ON v.id = r.version_id LEFT JOIN mutations m ON m.run_id = r.id "
            "WHERE e.status = 'consumed'"
        ):
            spec = scripts.spec_of(source)
            consumer = next(each for each in spec.consumers if each.name == handler)
            n = msgspec.json.decode(prepared)["data"]["n"]
            wants = consumer.method and not (consumer.spares and n % consumer.spares == 0)
            has = bool(self._done.get((workflow_id, handler, f"shop.{consumer.method}", message_id)))
            if wants and outcome != "success":
                self.wrong(f"{message_id!r} is consumed, and its call was never made ({outcome or 'none'})")
            elif wants and not has and not self._lies:
                self.wrong(f"{message_id!r} is consumed, and nothing happened outside ({root})")
            elif not wants and has:
                self.wrong(f"{message_id!r} should have had no effect, and has one")

    def _check_journal(self) -> None:
        [(count, first, last)] = self._rows("SELECT COUNT(*), MIN(seq), MAX(seq) FROM journal")
        if count and (first, last) != (1, count):
            self.wrong(f"the journal has {count} entries from {first} to {last}")
        settled = Counter(
            entry[0]
            for entry in self._rows(
                "SELECT json_extract(changed, '$.mutation') FROM journal "
                "WHERE operation IN ('apply_mutation', 'skip_mutation') "
            )
        )
        for mutation_id, times in settled.items():
            if times > 1:
                self.wrong(f"the journal has {self._trace.short(mutation_id)} settled {times} times")
