"""All spans and metrics. A test compares these tables with `docs/observability.md`.

No value comes from a payload, a parameter, a result or a title. The labels of a metric have few values: kinds, statuses
and the methods of the connectors, which the embedding service chooses. Ids are in spans and logs, not in labels.
"""

from typing import Final, Literal

import msgspec


class SpanName(msgspec.Struct, frozen=True):
    """A span: its attributes, known at its beginning, and its possible outcomes."""

    name: str
    attributes: tuple[str, ...]
    outcomes: tuple[str, ...]
    is_root: bool = False
    """A root has no parent: the request that woke a workflow did not cause its run; the rows in the file did."""


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
"""Outcome of a span whose work was cancelled, by a shutdown or a crash beside it."""
CRASHED: Final = "crashed"
"""Outcome of a span that an error of the runtime itself passed through."""


class Metric(msgspec.Struct, frozen=True):
    """A metric. A counter grows; a level rises and falls; a distribution has many values."""

    name: str
    kind: Literal["counter", "level", "distribution"]
    unit: str
    labels: tuple[str, ...]
    words: str
    per_workflow: bool = False
    """With `by_workflow` it has the label `workflow_id` too."""

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
"""Read from the database at each scrape, so only `metrics_app` has it."""
