"""What must be true: after every transaction, at every call, at every effect, and when everything has come to rest.

It believes the world, not the runtime. A person who lies is written down before he does, and what follows from the lie
is his.
"""

from collections import Counter, defaultdict
from typing import Any, Final

import msgspec

from keep_actors.connectors import MutationCall
from keep_actors.policy import Policy
from keep_actors.testing import Effect, Outside
from keep_storage import invariants
from keep_storage.statements import invariants as promises
from tests.simulation import scripts
from tests.simulation.disk import Disk, Move
from tests.simulation.trace import Trace
from tests.simulation.weather import Climate

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

# What the policy limits: how many runs of a workflow are parked, how often a connector was asked.
_LIMITED: Final = """
SELECT COALESCE((SELECT COUNT(*) FROM runs WHERE parked = 1 GROUP BY workflow_id ORDER BY 1 DESC LIMIT 1), 0),
    COALESCE((SELECT MAX(reconcile_attempts) FROM mutations), 0)"""

# A run has taken an event, and an older one of the same topic was there for it.
_OVERTAKEN: Final = """
SELECT o.message_id FROM events e JOIN events o ON o.topic_id = e.topic_id AND o.seq < e.seq AND o.status = 'pending'
WHERE e.reserved_by_run_id = ? LIMIT 1"""

# What should have been done by now: a question that has expired, a doubt that is to be looked into, a handler that was
# to run by the clock.
_OVERDUE: Final = """
SELECT a.id, 'has expired, and is still a question' FROM approvals a JOIN workflows w ON w.id = a.workflow_id
WHERE a.status = 'open' AND w.status <> 'archived' AND a.expires_at < ?
UNION ALL SELECT m.id, 'should have been looked for outside' FROM mutations m
JOIN workflows w ON w.id = m.workflow_id WHERE w.status <> 'archived' AND m.next_reconcile_at < ?
UNION ALL SELECT h.name, 'should have run by the clock' FROM handlers h JOIN workflows w ON w.id = h.workflow_id
WHERE h.declared = 1 AND w.status = 'active' AND w.error = '' AND w.maintenance = 0 AND w.pending_retry_run_id IS NULL
    AND COALESCE(h.next_run_at, h.wake_at) < ? AND COALESCE(h.retry_at, 0) < ? LIMIT 1"""

# An item that is done, and how many calls happened for it in that attempt.
_ITEMS_DONE: Final = """
SELECT i.workflow_id, i.item_id, i.attempt, v.source, COUNT(m.id) FROM items i
JOIN workflows w ON w.id = i.workflow_id JOIN script_versions v ON v.id = w.active_version_id
LEFT JOIN mutations m ON m.workflow_id = i.workflow_id AND m.item_id = i.item_id AND m.item_attempt = i.attempt
    AND m.status = 'applied'
WHERE i.state = 'done' GROUP BY i.workflow_id, i.item_id, i.attempt"""

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

    def __init__(self, trace: Trace, world: Outside, climate: Climate, policy: Policy) -> None:
        self._climate = climate
        self._policy = policy
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
        self._again: Counter[tuple[str, str]] = Counter()
        """How often somebody was told that an item is processed anew."""
        self._allowed: dict[str, dict[str, str]] = {}
        """What the work that is under way in a workflow may call, and whether it has to ask: permission and policy."""
        self._times: dict[tuple[str, str], int] = {}
        """How often each handler has committed, as its own state counts."""
        self._last_runs: dict[tuple[str, str], str] = {}
        """The last run of each handler."""
        self._unwanted: set[str] = set()
        """Scripts that a person has to accept before they run."""

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

    def has_it_again(self, workflow_id: str, item_id: str) -> None:
        """He was told that it will be."""
        self._again[(workflow_id, item_id)] += 1

    def _places_of(self, mutation_id: str) -> list[Place]:
        [(workflow_id, connector, method, params)] = self._rows(
            "SELECT workflow_id, connector, method, params FROM mutations WHERE id = ?", mutation_id
        )
        given = msgspec.json.decode(params)
        return [(workflow_id, given["by"], f"{connector}.{method}", each) for each in given["ids"]]

    def proposed(self, source: str) -> None:
        """A maintainer thinks that this needs a person."""
        self._unwanted.add(source)

    def wanted(self, source: str) -> None:
        """A person is about to want this script."""
        self._unwanted.discard(source)

    # What happens inside.

    def begins(self, workflow_id: str) -> None:
        """A piece of work begins. What it may call is what is granted now: a grant is taken back for the next one."""
        self._allowed[workflow_id] = dict(
            self._rows(
                "SELECT g.permission, g.policy FROM grants g JOIN script_versions v ON v.major = g.major "
                "JOIN workflows w ON w.id = g.workflow_id AND w.active_version_id = v.id WHERE w.id = ?",
                workflow_id,
            )
        )

    # What happens outside.

    def arrives(self, call: MutationCall) -> None:
        """A call has reached the other side: the ledger must have it as sent."""
        self._trace.note(self._trace.short(call.workflow_id), "call", self._trace.short(call.mutation_id))
        found = self._rows("SELECT status, method FROM mutations WHERE idempotency_key = ?", call.idempotency_key)
        statuses = [status for status, _ in found]
        if statuses != ["in_flight"]:
            self.wrong(f"a call was made that the ledger has as {statuses}, not as in_flight")
            return
        self._check_permission(call, found[0][1])
        self._check_order(call)

    def _check_permission(self, call: MutationCall, method: str) -> None:
        """It is granted, and if a person is to be asked first, one has said yes. What was approved needs no grant."""
        if self._rows("SELECT 1 FROM approvals WHERE mutation_id = ? AND status = 'approved'", call.mutation_id):
            return
        policy = self._allowed.get(call.workflow_id, {}).get(f"shop.{method}")
        if policy != "allow":
            said = "needs an approval" if policy == "ask" else "is not granted"
            self.wrong(f"a call of {method} was made, which {said}")

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
            self._check_move(move)
        if self._rows(_ANYTHING_BROKEN):
            broken = invariants.check(self.disk.queries(), deep=False)
            self.wrong(str(broken[0]) if broken else "an event is there before the run that published it committed")
        [(parked, checks)] = self._rows(_LIMITED)
        if parked > self._policy.parked_max:
            self.wrong(f"{parked} runs are parked; {self._policy.parked_max} may be")
        if checks > self._policy.reconcile.attempts_max:
            self.wrong(f"a connector was asked {checks} times; {self._policy.reconcile.attempts_max} are the most")
        figures.invariants += _SHALLOW + 7
        self._check_pending()
        self._check_script()

    def _check_move(self, move: Move) -> None:
        if move.kind in ("wrong", "early"):
            # The clock may have been set back since it was found to be time.
            if move.kind == "wrong" or not self._climate.clock_jumps:
                self.wrong(f"{self._trace.short(move.what)} {move.after}")
            return
        if why := self._trace.moved(*move):
            self.wrong(why)
        match move.kind, move.before, move.after:
            case "mutation", "in_flight", after if after in _UNCERTAIN:
                self._trace.figures.uncertain += 1
                self._doubted.add(move.what)
            case "status", None, _:
                self._last_runs[self._handler_of(move)] = move.what
            case ("phase", _, "prepared") | ("status", _, "committed"):
                self._check_state(move)
            case "status", _, "paused:transient" | "failed:logic":
                self._check_stop(move)

    def _check_stop(self, move: Move) -> None:
        """What may pass is not tried for ever, and only what is the script's fault is held against it."""
        failures, words = self._rows(
            "SELECT h.failures, r.error_message FROM runs r "
            "JOIN handlers h ON h.workflow_id = r.workflow_id AND h.name = r.handler WHERE r.id = ?",
            move.what,
        )[0]
        name = self._trace.short(move.what)
        if move.after == "failed:logic" and "poison" not in words and "shop." not in words:
            self.wrong(f"{name} is held against its script: {words}")
        if move.after == "paused:transient" and failures >= self._policy.retry.attempts_max:
            self.wrong(f"{name} is tried again after {failures} failures in a row")

    def _handler_of(self, move: Move) -> tuple[str, str]:
        return move.workflow_id, self._rows("SELECT handler FROM runs WHERE id = ?", move.what)[0][0]

    def _check_state(self, move: Move) -> None:
        """A handler is given the state that its last commit left, and leaves the next one."""
        prepared, left, retry_of = self._rows(
            "SELECT prepare_result, output_state, retry_of FROM runs WHERE id = ?", move.what
        )[0]
        place, name = self._handler_of(move), self._trace.short(move.what)
        handler, times = place[1], self._times.get(place, 0)
        if move.after == "prepared":
            given = msgspec.json.decode(prepared)["data"]["times"]
            if given != times:
                self.wrong(f"{name} of {handler} was given the state of commit {given}; the last one was {times}")
            overtaken = self._rows(_OVERTAKEN, move.what) if self._climate.unknown == "pause" else []
            if overtaken:
                self.wrong(f"{name} of {handler} has taken an event before {overtaken[0][0]!r}, which is older")
        elif left is not None:
            self._times[place] = msgspec.json.decode(left)["times"]
            # One that carries on was prepared earlier: others may have committed since.
            if retry_of is None and self._times[place] != times + 1:
                self.wrong(f"{name} of {handler} left the state of commit {self._times[place]} after {times}")

    def _check_script(self) -> None:
        """What a maintainer holds to be harmful does not run before a person wants it."""
        if not self._unwanted:
            return
        for (source,) in self._rows(
            "SELECT v.source FROM workflows w JOIN script_versions v ON v.id = w.active_version_id"
        ):
            if source in self._unwanted:
                self.wrong("a proposal runs that a person should have accepted")

    def _check_pending(self) -> None:
        if not self._done:
            return
        for workflow_id, consumer, message_id in self._rows(_PENDING):
            for method in ("shop.add", "shop.put"):
                place = (workflow_id, consumer, method, message_id)
                if len(self._done.get(place, ())) > self._excused[place]:
                    self.wrong(f"{message_id!r} is pending, and what it stands for has happened")

    def overdue(self, then: int) -> None:
        """In calm: nothing is left that should have been done by then."""
        for what, how in self._rows(_OVERDUE, then, then, then, then):
            self.wrong(f"{self._trace.short(what)} {how}")

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
        self._check_items()
        self._check_last_runs()
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
            left = None
            if consumer.has_next:
                left = {"ids": data["ids"], "told": told, "got": got, "times": data["times"] + 1}
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

    def _check_items(self) -> None:
        """Whatever attempt at an item is done, each of its calls happened in that attempt."""
        for workflow_id, item_id, attempt, source, calls in self._rows(_ITEMS_DONE):
            job = scripts.spec_of(source).job
            if job is not None and calls != len(job.methods):
                name = self._trace.short(workflow_id)
                self.wrong(f"item {item_id!r} of {name} is done at attempt {attempt}, with {calls} calls")

        for (workflow_id, item_id), times in self._again.items():
            [(attempt,)] = self._rows(
                "SELECT MAX(attempt) FROM items WHERE workflow_id = ? AND item_id = ?", workflow_id, item_id
            )
            if attempt < 1 + times:
                self.wrong(f"item {item_id!r} was wanted {times} times more, and is at attempt {attempt}")

    def _check_last_runs(self) -> None:
        """A run that had chosen nothing and stopped is followed by another, though there is no event to ask for it."""
        for (_, handler), run_id in self._last_runs.items():
            if self._rows(
                "SELECT 1 FROM runs r JOIN workflows w ON w.id = r.workflow_id AND w.status = 'active' "
                "JOIN handlers h ON h.workflow_id = r.workflow_id AND h.name = r.handler AND h.declared = 1 "
                "WHERE r.id = ? AND r.status <> 'committed' AND r.kind = 'consumer' AND r.reserved_count = 0 "
                "AND r.prepare_result IS NOT NULL AND h.wake_at IS NULL",
                run_id,
            ):
                self.wrong(f"{self._trace.short(run_id)} of {handler} has stopped, and nothing has come after it")

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
