"""When everything has come to rest: the ledger, the runs, the events and the items are compared with the world."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec

from keep_actors.testing import Outside
from tests.simulation import scripts
from tests.simulation.disk import Disk
from tests.simulation.seen import Seen
from tests.simulation.trace import Trace

# An item that is done, and how many calls happened for it in that attempt.
_ITEMS_DONE: Final = """
SELECT i.workflow_id, i.item_id, i.attempt, v.source, COUNT(m.id) FROM items i
JOIN workflows w ON w.id = i.workflow_id JOIN script_versions v ON v.id = w.active_version_id
LEFT JOIN mutations m ON m.workflow_id = i.workflow_id AND m.item_id = i.item_id AND m.item_attempt = i.attempt
    AND m.status = 'applied'
WHERE i.state = 'done' GROUP BY i.workflow_id, i.item_id, i.attempt"""


class Reckoning:
    """`check` tells `wrong` what does not add up."""

    def __init__(self, disk: Disk, trace: Trace, world: Outside, seen: Seen, wrong: Callable[[str], None]) -> None:
        self._rows: Callable[..., list[tuple[Any, ...]]] = disk.rows
        self._trace = trace
        self._world = world
        self._seen = seen
        self._wrong = wrong

    def check(self) -> None:
        """Everything."""
        self._check_nothing_is_lost()
        self._check_the_ledger()
        self._check_runs()
        self._check_effects_of_consumed()
        self._check_items()
        self._check_refusals()
        self._check_last_runs()
        self._check_journal()

    def settled_by(self) -> Counter[str]:
        """Of the calls of which nobody knew at some time what became of them: who has said it, and what."""
        reasons: Counter[str] = Counter()
        for mutation_id in self._seen.doubted:
            status, by = self._rows("SELECT status, resolved_by FROM mutations WHERE id = ?", mutation_id)[0]
            reasons[f"{status} by {by}" if by else f"{status}, an open question"] += 1
        return reasons

    def _check_nothing_is_lost(self) -> None:
        for workflow_id, topic, message_id in self._seen.told:
            if not self._event(workflow_id, topic, message_id):
                self._wrong(f"somebody was told that {message_id!r} is in {topic}, and it is not")

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
            effect, lie = self._world.truth(key), self._seen.lies.get(mutation_id)
            name = self._trace.short(mutation_id)
            if status == "applied" and lie is None:
                if effect is None:
                    self._wrong(f"the ledger has {name} as applied by {by}, and nothing happened")
                elif msgspec.json.decode(result) != {"id": effect.result.id}:
                    self._wrong(f"the ledger has {result} as the result of {name}; it was {effect.result.id}")
            if status == "failed" and effect is not None and lie is None and by != "user_skip":
                self._wrong(f"the ledger has {name} as failed by {by}, and it happened")
        for effect in self._world.effects:
            if effect.key not in known:
                self._wrong(f"{effect.method} had an effect that no line of the ledger is about")

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
                self._wrong(f"`next` of {self._trace.short(run_id)} left {state}, and should have left {left}")
            if consumer.to:
                self._check_published(run_id, consumer, data, told, got)

    def _check_published(self, run_id: str, consumer: scripts.Consumer, data: Any, told: str, got: str) -> None:
        [(workflow_id,)] = self._rows("SELECT workflow_id FROM runs WHERE id = ?", run_id)
        for message_id in data["ids"]:
            found = self._event(workflow_id, consumer.to, f"{consumer.name}:{message_id}")
            if found is None:
                self._wrong(f"{self._trace.short(run_id)} committed, and its event about {message_id!r} is not there")
                continue
            payload = msgspec.json.decode(found[2])
            if (payload["told"], payload["got"]) != (told, got):
                self._wrong(f"the event about {message_id!r} says {payload}; `next` was told {told} {got}")

    def _check_effects_of_consumed(self) -> None:
        """What was consumed has had its effect, if the script that consumed it wanted one."""
        for workflow_id, handler, message_id, source, prepared, outcome, root in self._rows(
            "SELECT r.workflow_id, r.handler, e.message_id, v.source, r.prepare_result, r.mutation_outcome, "
            "COALESCE(m.id, '') FROM events e JOIN runs_of_events h ON h.event_id = e.id "
            "JOIN runs r ON r.id = h.run_id AND r.status = 'committed' "
            "JOIN script_versions v ON v.id = r.version_id LEFT JOIN mutations m ON m.identity_key = r.id "
            "WHERE e.status = 'consumed'"
        ):
            spec = scripts.spec_of(source)
            consumer = next(each for each in spec.consumers if each.name == handler)
            n = msgspec.json.decode(prepared)["data"]["n"]
            wants = consumer.method and not (consumer.spares and n % consumer.spares == 0)
            place = (workflow_id, handler, f"shop.{consumer.method}", message_id)
            has = bool(self._seen.done.get(place))
            if wants and outcome != "success":
                self._wrong(f"{message_id!r} is consumed, and its call was never made ({outcome or 'none'})")
            elif wants and not has and not self._seen.lies:
                self._wrong(f"{message_id!r} is consumed, and nothing happened outside ({root})")
            elif not wants and has and not self._seen.excused[place]:
                self._wrong(f"{message_id!r} should have had no effect, and has one")

    def _check_items(self) -> None:
        """Whatever attempt at an item is done, each of its calls happened in that attempt."""
        for workflow_id, item_id, attempt, source, calls in self._rows(_ITEMS_DONE):
            job = scripts.spec_of(source).job
            if job is not None and calls != len(job.methods):
                name = self._trace.short(workflow_id)
                self._wrong(f"item {item_id!r} of {name} is done at attempt {attempt}, with {calls} calls")
            if job is not None and job.publishes and not self._event(workflow_id, "t0", f"{job.name}:{item_id}"):
                self._wrong(f"item {item_id!r} is done, and the event that it published is not there")

        for (workflow_id, item_id), times in self._seen.again.items():
            [(attempt,)] = self._rows(
                "SELECT MAX(attempt) FROM items WHERE workflow_id = ? AND item_id = ?", workflow_id, item_id
            )
            if attempt < 1 + times:
                self._wrong(f"item {item_id!r} was wanted {times} times more, and is at attempt {attempt}")

    def _check_refusals(self) -> None:
        """A no is a no: what the call was about is skipped, and the call was never made."""
        for approval_id, is_answered in self._seen.refused.items():
            [(status, mutation, run_id, item_id, attempt, workflow_id)] = self._rows(
                "SELECT a.status, m.status, m.run_id, m.item_id, m.item_attempt, m.workflow_id "
                "FROM approvals a JOIN mutations m ON m.id = a.mutation_id WHERE a.id = ?",
                approval_id,
            )
            name = self._trace.short(approval_id)
            if status != "rejected":
                if is_answered:
                    self._wrong(f"somebody was told that {name} is refused, and it is {status}")
                continue
            left = self._rows(
                "SELECT e.status FROM runs_of_events h JOIN events e ON e.id = h.event_id WHERE h.run_id = ? "
                "UNION SELECT state FROM items WHERE workflow_id = ? AND item_id = ? AND attempt = ?",
                run_id,
                workflow_id,
                item_id,
                attempt,
            )
            if is_answered and (mutation != "failed" or {each for (each,) in left} != {"skipped"}):
                self._wrong(f"{name} was refused, and what it is about is {left}, the call {mutation}")

    def _check_last_runs(self) -> None:
        """A run that had chosen nothing and stopped is followed by another, though there is no event to ask for it."""
        for (_, handler), run_id in self._seen.last_runs.items():
            if self._rows(
                "SELECT 1 FROM runs r JOIN workflows w ON w.id = r.workflow_id AND w.status = 'active' "
                "JOIN handlers h ON h.workflow_id = r.workflow_id AND h.name = r.handler AND h.declared = 1 "
                "WHERE r.id = ? AND r.status <> 'committed' AND r.kind = 'consumer' AND r.reserved_count = 0 "
                "AND r.prepare_result IS NOT NULL AND h.wake_at IS NULL",
                run_id,
            ):
                self._wrong(f"{self._trace.short(run_id)} of {handler} has stopped, and nothing has come after it")

    def _check_journal(self) -> None:
        [(count, first, last)] = self._rows("SELECT COUNT(*), MIN(seq), MAX(seq) FROM journal")
        if count and (first, last) != (1, count):
            self._wrong(f"the journal has {count} entries from {first} to {last}")
        settled = Counter(
            entry[0]
            for entry in self._rows(
                "SELECT json_extract(changed, '$.mutation') FROM journal_entries "
                "WHERE operation IN ('apply_mutation', 'skip_mutation') "
            )
        )
        for mutation_id, times in settled.items():
            if times > 1:
                self._wrong(f"the journal has {self._trace.short(mutation_id)} settled {times} times")
