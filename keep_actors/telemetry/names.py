"""Every span and every metric there is: `docs/observability.md` has the same tables, by test.

No value comes from a payload, a parameter, a result or a title. The labels of a metric have few values: kinds, statuses
and the methods of the connectors, which the embedding service chooses. Ids are in spans and logs, not in labels.
"""

from typing import Final, Literal

import msgspec


class SpanName(msgspec.Struct, frozen=True):
    """A span, what is known when it begins, and how it may end."""

    name: str
    attributes: tuple[str, ...]
    outcomes: tuple[str, ...]
    is_root: bool = False
    """Whoever woke a workflow, a request say, did not cause its run: what is in the file did."""


RUN: Final = SpanName(
    "keep.run",
    ("workflow_id", "workflow", "run_id", "handler", "kind", "trigger"),
    (
        "committed",
        "paused:transient",
        "paused:approval",
        "paused:reconciliation",
        "failed:logic",
        "failed:internal",
        "not_admitted",
    ),
    is_root=True,
)
ERRAND: Final = SpanName("keep.errand", ("workflow_id", "workflow", "errand"), ("done",), is_root=True)
PHASE: Final = SpanName("keep.phase", ("phase",), ("returned", "mutation", "failed"))
CALL: Final = SpanName(
    "keep.call", ("method", "access"), ("answered", "failed", "happened", "did_not_happen", "unknown")
)
SPANS: Final = (RUN, ERRAND, PHASE, CALL)

CUT_OFF: Final = "cut_off"
"""How any span ends whose work was cancelled: a shutdown, or a crash beside it."""
CRASHED: Final = "crashed"
"""How any span ends that an error of the runtime's own went through."""


class Metric(msgspec.Struct, frozen=True):
    """A counter grows; a level goes up and down; a distribution is many values."""

    name: str
    kind: Literal["counter", "level", "distribution"]
    unit: str
    labels: tuple[str, ...]
    words: str
    per_workflow: bool = False
    """Has the label `workflow_id` too, where that is switched on."""

    def labels_for(self, *, by_workflow: bool) -> tuple[str, ...]:
        return (*self.labels, "workflow_id") if by_workflow and self.per_workflow else self.labels


RUNS: Final = Metric("keep.runs", "counter", "run", ("kind", "status", "failure"), "Runs that ended.", True)
RUN_MS: Final = Metric(
    "keep.run.ms", "distribution", "ms", ("kind",), "How long runs took, with the wait for their turn.", True
)
MUTATIONS: Final = Metric(
    "keep.mutations", "counter", "call", ("method", "outcome", "failure"), "Mutations that were sent.", True
)
CALL_MS: Final = Metric(
    "keep.call.ms", "distribution", "ms", ("method", "access", "outcome"), "How long connectors took.", True
)
COMMIT_OPERATIONS: Final = Metric(
    "keep.commit.operations", "distribution", "operation", (), "Operations that shared one commit."
)
MAILBOX_MESSAGES: Final = Metric(
    "keep.mailbox.messages", "distribution", "message", (), "Messages left in a workflow's mailbox as one is taken."
)
ACTIVE: Final = Metric("keep.workflows.active", "level", "workflow", (), "Workflows in memory: busy, or about to be.")
NOTICES: Final = Metric(
    "keep.notices", "counter", "attempt", ("sink", "outcome"), "Attempts at telling people that one is needed."
)
METRICS: Final = (RUNS, RUN_MS, MUTATIONS, CALL_MS, COMMIT_OPERATIONS, MAILBOX_MESSAGES, ACTIVE, NOTICES)

ATTENTION: Final = Metric("keep.workflows.attention", "level", "workflow", (), "Workflows that wait for a person.")
"""Asked of the database when Prometheus asks, so only `metrics_app` has it."""
