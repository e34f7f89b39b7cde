"""What must be true: after every transaction, at every call, at every effect; `reckoning` is for the end.

It believes the world, not the runtime. A person who lies is written down before he does, and what follows from the lie
is his.
"""

from collections import Counter
from typing import Any, Final

import msgspec

from keep_actors.connectors import MutationCall
from keep_actors.policy import Policy
from keep_actors.testing import Effect, Outside
from keep_storage import invariants
from keep_storage.statements import invariants as promises
from tests.simulation import scripts
from tests.simulation.disk import Disk, Move
from tests.simulation.reckoning import Reckoning
from tests.simulation.seen import Place, Seen
from tests.simulation.trace import Trace
from tests.simulation.weather import MANY, MINUTE, Climate

_SHALLOW: Final = sum(1 for each in promises().values() if each.mark != "deep")

_UNCERTAIN: Final = ("needs_reconcile", "indeterminate")

# Events of a run that has not committed are in no topic: what a run publishes is there with its commit, or with the end
# of the item in which it was published.
_PUBLISHED_TOO_SOON: Final = """
SELECT e.message_id FROM events e JOIN runs r ON r.id = e.created_by_run_id WHERE r.status <> 'committed'
    AND NOT EXISTS (SELECT 1 FROM items i WHERE i.workflow_id = r.workflow_id AND i.state = 'done'
        AND e.message_id = r.handler || ':' || i.item_id)"""

# An archived workflow asks nobody: only a run that is still active can have asked a moment ago.
_ASKED_IN_AN_ARCHIVE: Final = """
SELECT a.id FROM approvals a JOIN workflows w ON w.id = a.workflow_id AND w.status = 'archived'
JOIN mutations m ON m.id = a.mutation_id JOIN runs r ON r.id = m.run_id
WHERE a.status = 'open' AND r.status <> 'active'"""

# When a call was written into the ledger, as the journal counts.
_RECORDED: Final = """
SELECT MAX(seq) FROM journal_entries
WHERE run_id = ? AND operation = 'create_mutation' AND json_extract(changed, '$.mutation') = ?"""

# The last that people had said by then: of the workflow, of the run, of a permission.
_LAST_STATUS: Final = """
SELECT operation FROM journal_entries WHERE workflow_id = ? AND seq < ?
    AND operation IN ('pause_workflow', 'resume_workflow', 'archive_workflow', 'unarchive_workflow')
ORDER BY seq DESC LIMIT 1"""
_STOPPED: Final = "SELECT 1 FROM journal_entries WHERE run_id = ? AND operation = 'stop_run' AND seq < ?"
_LAST_GRANT: Final = """
SELECT COALESCE(json_extract(j.changed, '$.policy'), 'revoked') FROM journal_entries j
JOIN runs r ON r.id = ? JOIN script_versions v ON v.id = r.version_id
WHERE j.workflow_id = r.workflow_id AND j.operation IN ('grant_permission', 'revoke_permission') AND j.seq < ?
    AND json_extract(j.changed, '$.permission') = ? AND json_extract(j.changed, '$.major') = v.major
ORDER BY j.seq DESC LIMIT 1"""

# What follows from an event is there only once that event is consumed or skipped: `c0:x` follows from `x`.
_FOLLOWS_TOO_SOON: Final = """
SELECT e.message_id FROM events e JOIN topics t ON t.id = e.topic_id
JOIN topics b ON b.workflow_id = t.workflow_id AND b.consumer = substr(e.message_id, 1, instr(e.message_id, ':') - 1)
JOIN events s ON s.topic_id = b.id AND s.message_id = substr(e.message_id, instr(e.message_id, ':') + 1)
WHERE s.status NOT IN ('consumed', 'skipped')"""

# What the policy limits: how many runs of a workflow are parked, how often a connector was asked, and a person.
_LIMITED: Final = """
SELECT COALESCE((SELECT COUNT(*) FROM runs WHERE parked = 1 AND kind = 'consumer'
        GROUP BY workflow_id ORDER BY 1 DESC LIMIT 1), 0),
    COALESCE((SELECT MAX(reconcile_attempts) FROM mutations), 0),
    COALESCE((SELECT COUNT(*) FROM approvals a JOIN mutations m ON m.id = a.mutation_id AND m.item_id IS NULL
        GROUP BY a.mutation_id ORDER BY 1 DESC LIMIT 1), 0)"""

# A run has taken an event, and an older one of the same topic was there for it.
_OVERTAKEN: Final = """
SELECT o.message_id FROM events e JOIN events o ON o.topic_id = e.topic_id AND o.seq < e.seq AND o.status = 'pending'
WHERE e.reserved_by_run_id = ? LIMIT 1"""

# What should have been done by now: a question that has expired, a doubt that is to be looked into, a handler that was
# to run by the clock.
_OVERDUE: Final = """
SELECT a.id, 'has expired, and is still a question' FROM approvals a WHERE a.status = 'open' AND a.expires_at < ?
UNION ALL SELECT m.id, 'should have been looked for outside' FROM mutations m WHERE m.next_reconcile_at < ?
UNION ALL SELECT h.name, 'should have run by the clock' FROM handlers h JOIN workflows w ON w.id = h.workflow_id
WHERE h.declared = 1 AND w.status = 'active' AND w.error = '' AND w.maintenance = 0 AND w.pending_retry_run_id IS NULL
    AND COALESCE(h.next_run_at, h.wake_at) < ? AND COALESCE(h.retry_at, 0) < ?
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.workflow_id = w.id AND r.parked = 1 AND r.handler = h.name
        AND r.kind = 'job') LIMIT 1"""

_OURS: Final = {
    "an event is there before the run that published it committed": _PUBLISHED_TOO_SOON,
    "an event is there before the one that it follows from was finished": _FOLLOWS_TOO_SOON,
    "an archived workflow asks a person": _ASKED_IN_AN_ARCHIVE,
    "an operation was refused, and a part of it is there": "SELECT 1 FROM events WHERE message_id GLOB 'half*'",
}
"""Promises that the storage's own invariants do not have."""

_ANYTHING_BROKEN: Final = " UNION ALL ".join(
    f"SELECT 1 WHERE EXISTS ({sql})"  # our own text
    for sql in [*_OURS.values(), *(each.sql for each in promises().values() if each.mark != "deep")]
)
"""All promises that are checked at every transaction, asked at once. Which one it was is asked again by name."""

_PENDING: Final = """
SELECT t.workflow_id, t.consumer, e.message_id FROM events e JOIN topics t ON t.id = e.topic_id
WHERE e.status = 'pending' AND t.consumer IS NOT NULL"""


class Oracle:
    """Watches one story. `violation` is the first thing that was wrong."""

    def __init__(self, trace: Trace, world: Outside, climate: Climate, policy: Policy) -> None:
        self.violation = ""
        self.disk: Disk | None = None
        self._trace = trace
        self._world = world
        self._climate = climate
        self._policy = policy
        self._seen = Seen()
        self._noted: dict[tuple[str, int], list[str]] = {}
        """The notes that may be kept, by call and attempt."""

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
        self._seen.told.append((workflow_id, topic, message_id))

    def lied(self, mutation_id: str, verdict: str) -> None:
        """A person is about to say what is not so."""
        self._seen.lies[mutation_id] = verdict
        self._trace.figures.lies += 1
        if verdict == "did_not_happen":
            for place in self._places_of(mutation_id):
                self._seen.excused[place] += 1

    def put_right(self, mutation_id: str) -> None:
        """A person has amended the result that was given by mistake: from here on the true one counts."""
        del self._seen.lies[mutation_id]

    def refuses(self, approval_id: str) -> None:
        """A person is about to say no to a call."""
        self._seen.refused.setdefault(approval_id, False)

    def refused(self, approval_id: str) -> None:
        """That was answered: the call is not made, and nobody is asked about it again."""
        self._seen.refused[approval_id] = True

    def wants_again(self, workflow_id: str, item_id: str) -> None:
        """A person wants an item processed anew."""
        for method in ("add", "put"):
            self._seen.excused[(workflow_id, "sweep", f"shop.{method}", item_id)] += 1

    def has_it_again(self, workflow_id: str, item_id: str) -> None:
        """He was told that it will be."""
        self._seen.again[(workflow_id, item_id)] += 1

    def _places_of(self, mutation_id: str) -> list[Place]:
        [(workflow_id, connector, method, params)] = self._rows(
            "SELECT workflow_id, connector, method, params FROM mutations WHERE id = ?", mutation_id
        )
        given = msgspec.json.decode(params)
        return [(workflow_id, given["by"], f"{connector}.{method}", each) for each in given["ids"]]

    def proposed(self, source: str, *, is_safe: bool) -> None:
        """A maintainer proposes this. What people were shown before and did not want does not become safe."""
        if source in self._seen.wanted:
            return
        if not is_safe:
            self._seen.unwanted.add(source)
        elif not self._rows("SELECT 1 FROM script_versions WHERE source = ?", source):
            self._seen.unwanted.discard(source)

    def wanted(self, source: str) -> None:
        """A person is about to want this script."""
        self._seen.wanted.add(source)
        self._seen.unwanted.discard(source)

    # What happens outside.

    def arrives(self, call: MutationCall) -> None:
        """A call has reached the other side: the ledger must have it as sent."""
        self._trace.note(self._trace.short(call.workflow_id), "call", self._trace.short(call.mutation_id))
        found = self._rows("SELECT status, method FROM mutations WHERE idempotency_key = ?", call.idempotency_key)
        statuses = [status for status, _ in found]
        if statuses != ["in_flight"]:
            self.wrong(f"a call was made that the ledger has as {statuses}, not as in_flight")
            return
        self._check_what_people_said(call, found[0][1])
        self._check_order(call)

    def notes(self, call: MutationCall, text: str, *, is_durable: bool) -> None:
        """A connector keeps a note, and is told that it is kept."""
        key = call.mutation_id, call.attempt
        if is_durable:
            self._noted[key] = [text]
        else:
            self._noted.setdefault(key, [""]).append(text)

    def looks(self, call: MutationCall) -> None:
        """It gets the last note of this attempt that was kept, or one whose keeping nobody heard of."""
        expected = self._noted.get((call.mutation_id, call.attempt), [""])
        if call.noted not in expected:
            self.wrong(f"a connector noted one of {expected}, and gets {call.noted!r} when it looks")

    def _check_what_people_said(self, call: MutationCall, method: str) -> None:
        """When it was recorded nobody had stopped it, it was granted, and nobody was to be asked first.

        What was approved needs nothing else.
        """
        if self._rows("SELECT 1 FROM approvals WHERE mutation_id = ? AND status = 'approved'", call.mutation_id):
            return
        [(recorded,)] = self._rows(_RECORDED, call.run_id, call.mutation_id)
        said = self._rows(_LAST_STATUS, call.workflow_id, recorded)
        if said and said[0][0] != "resume_workflow":
            self.wrong(f"a call of {method} was recorded after {said[0][0]}")
        if self._rows(_STOPPED, call.run_id, recorded):
            self.wrong(f"a call of {method} was recorded after a person had stopped its run")
        granted = self._rows(_LAST_GRANT, call.run_id, recorded, f"shop.{method}")
        policy = granted[0][0] if granted else "revoked"
        if policy != "allow":
            why = "needs an approval" if policy == "ask" else "is not granted"
            self.wrong(f"a call of {method} was made, which {why}")

    def _check_order(self, call: MutationCall) -> None:
        """Beside a call whose outcome nobody knows, nothing is done about the same thing."""
        source = self._rows(
            "SELECT v.source FROM runs r JOIN script_versions v ON v.id = r.version_id WHERE r.id = ?", call.run_id
        )[0][0]
        by = call.params["by"]
        if not any(each.ordered for each in scripts.spec_of(source).consumers if each.name == by):
            return
        rows = self._rows(
            "SELECT 1 FROM mutations d JOIN runs_of_events dh ON dh.run_id = d.run_id "
            "JOIN events de ON de.id = dh.event_id JOIN runs dr ON dr.id = d.run_id "
            "JOIN runs_of_events h ON h.run_id = ? JOIN events e ON e.id = h.event_id "
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
        if status not in ("in_flight", *_UNCERTAIN) and mutation_id not in self._seen.lies:
            by = self._rows("SELECT resolved_by FROM mutations WHERE id = ?", mutation_id)[0][0]
            # People know what is on its way; nobody else may speak before it is there.
            if by not in ("user_skip", "user_assert_applied"):
                self.wrong(f"{effect.method} had its effect when the ledger had it as {status}")
        for message_id in effect.params["ids"]:
            place = (effect.workflow_id, effect.params["by"], effect.method, message_id)
            self._seen.done[place].append(effect.key)
            if len(self._seen.done[place]) > 1 + self._seen.excused[place]:
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
            self.wrong(self._what_is_broken())
        [(parked, checks, asked)] = self._rows(_LIMITED)
        if asked > 1 + self._policy.approval_reminders:
            self.wrong(f"a person was asked {asked} times; {1 + self._policy.approval_reminders} are the most")
        if parked > self._policy.parked_max:
            self.wrong(f"{parked} runs are parked; {self._policy.parked_max} may be")
        if checks > self._policy.reconcile.attempts_max:
            self.wrong(f"a connector was asked {checks} times; {self._policy.reconcile.attempts_max} are the most")
        figures.invariants += _SHALLOW + 9
        self._check_pending()
        self._check_script()

    def _what_is_broken(self) -> str:
        assert self.disk is not None, "the story has begun"
        broken = [str(each) for each in invariants.check(self.disk.queries(), deep=False)]
        return [*broken, *(words for words, sql in _OURS.items() if self._rows(sql))][0]

    def _check_move(self, move: Move) -> None:
        if move.kind in ("wrong", "early"):
            # The clock may have been set back since it was found to be time.
            if move.kind == "wrong" or not self._climate.clock_jumps:
                self.wrong(f"{self._trace.short(move.what)} {move.after}")
            return
        if (move.kind, move.before, move.after) == ("mutation", "applied", "applied"):
            self._check_amended(move)
            return
        if why := self._trace.moved(*move):
            self.wrong(why)
        match move.kind, move.before, move.after:
            case "mutation", "in_flight", after if after in _UNCERTAIN:
                self._trace.figures.uncertain += 1
                self._seen.doubted.add(move.what)
            case "status", None, _:
                self._seen.last_runs[self._handler_of(move)] = move.what
            case ("phase", _, "prepared") | ("status", _, "committed"):
                self._check_state(move)
            case "status", _, "paused:transient" | "failed:logic":
                self._check_stop(move)
            case "status", _, "paused:approval":
                self._check_parked(move)

    def _check_amended(self, move: Move) -> None:
        """A result is put right only as long as nothing has used it, and only what a person gave."""
        name = self._trace.short(move.what)
        self._trace.note(self._trace.short(move.workflow_id), "mutation", name, "amended")
        by, used = self._rows(
            "SELECT m.resolved_by, EXISTS (SELECT 1 FROM runs r WHERE r.retry_of = m.run_id) FROM mutations m "
            "WHERE m.id = ?",
            move.what,
        )[0]
        if by != "user_assert_applied" or used:
            self.wrong(f"the result of {name} was changed, which {by} gave{' and a run has used' if used else ''}")

    def _check_parked(self, move: Move) -> None:
        """A question holds only what it is about, as long as there are not too many."""
        is_asked, parked, kind = self._rows(
            "SELECT EXISTS (SELECT 1 FROM mutations m WHERE m.run_id = r.id AND m.status = 'pending'), "
            "r.parked, r.kind FROM runs r WHERE r.id = ?",
            move.what,
        )[0]
        if is_asked and not parked and (kind == "job" or self._policy.parked_max >= MANY):
            self.wrong(f"the question of {self._trace.short(move.what)} stops its workflow")

    def _check_stop(self, move: Move) -> None:
        """What may pass is not tried for ever, and only what is the script's fault is held against it."""
        failures, lasted_ms, words = self._rows(
            "SELECT h.failures, COALESCE(r.ended_at - h.failing_since, 0), r.error_message FROM runs r "
            "JOIN handlers h ON h.workflow_id = r.workflow_id AND h.name = r.handler WHERE r.id = ?",
            move.what,
        )[0]
        name = self._trace.short(move.what)
        if move.after == "failed:logic" and "poison" not in words and "shop." not in words:
            self.wrong(f"{name} is held against its script: {words}")
        # What people stop or skip is no failure: only the words of a connector are.
        has_failed = move.after == "paused:transient" and "shop." in words
        if has_failed and failures >= self._policy.retry.attempts_max:
            self.wrong(f"{name} is tried again after {failures} failures in a row")
        # What is decided waits for a storage that cannot write; a clock that is set in between is no measure.
        too_long_ms = self._policy.give_up_after_ms + 2 * MINUTE
        is_late = lasted_ms >= too_long_ms and not self._climate.clock_jumps
        if has_failed and is_late:
            self.wrong(f"{name} is tried again though its handler has failed for {lasted_ms} ms: {words}")

    def _handler_of(self, move: Move) -> tuple[str, str]:
        return move.workflow_id, self._rows("SELECT handler FROM runs WHERE id = ?", move.what)[0][0]

    def _check_state(self, move: Move) -> None:
        """A handler is given the state that its last commit left, and leaves the next one."""
        prepared, left, retry_of = self._rows(
            "SELECT prepare_result, output_state, retry_of FROM runs WHERE id = ?", move.what
        )[0]
        place, name = self._handler_of(move), self._trace.short(move.what)
        handler, times = place[1], self._seen.times.get(place, 0)
        if move.after == "prepared":
            given = msgspec.json.decode(prepared)["data"]["times"]
            if given != times:
                self.wrong(f"{name} of {handler} was given the state of commit {given}; the last one was {times}")
            parks = self._climate.unknown == "park" or self._climate.asks
            overtaken = self._rows(_OVERTAKEN, move.what) if not parks else []
            if overtaken:
                self.wrong(f"{name} of {handler} has taken an event before {overtaken[0][0]!r}, which is older")
        elif left is not None:
            self._seen.times[place] = msgspec.json.decode(left)["times"]
            # One that carries on was prepared earlier: others may have committed since.
            if retry_of is None and self._seen.times[place] != times + 1:
                self.wrong(f"{name} of {handler} left the state of commit {self._seen.times[place]} after {times}")

    def _check_script(self) -> None:
        """What a maintainer holds to be harmful does not run before a person wants it."""
        if not self._seen.unwanted:
            return
        for (source,) in self._rows(
            "SELECT v.source FROM workflows w JOIN script_versions v ON v.id = w.active_version_id"
        ):
            if source in self._seen.unwanted:
                self.wrong("a proposal runs that a person should have accepted")

    def _check_pending(self) -> None:
        if not self._seen.done:
            return
        for workflow_id, consumer, message_id in self._rows(_PENDING):
            for method in ("shop.add", "shop.put"):
                place = (workflow_id, consumer, method, message_id)
                if len(self._seen.done.get(place, ())) > self._seen.excused[place]:
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
        reckoning = Reckoning(self.disk, self._trace, self._world, self._seen, self.wrong)
        reckoning.check()
        figures.runs += self._rows("SELECT COUNT(*) FROM runs")[0][0]
        figures.settled_by = dict(Counter(figures.settled_by) + reckoning.settled_by())
