"""The question that an unknown outcome is to a person: what was to be done, what is known, and what can be said.

One structure for the library, the command line and the console. Never a matter for repair.
"""

import msgspec

from keep_actors.api.expected import expected_of
from keep_actors.api.verdicts import VERDICTS, OpenVerdict, Tried
from keep_actors.api.verdicts import Escalation as Escalation
from keep_actors.connectors import Catalog, MutationCall, ParamsError
from keep_storage import attention_reads, reads
from keep_storage.model import AttentionKind, AttentionRow, JournalEntry, Json, Mutation, MutationStatus, RunStatus
from keep_storage.transaction import Queries


def escalations(q: Queries, catalog: Catalog, workflow_id: str | None) -> list[Escalation]:
    """Every open question about an outcome, oldest first: everywhere, or in one workflow."""
    rows = [each for each in attention_reads.attention(q, workflow_id) if each.kind is AttentionKind.UNKNOWN]
    found = (_escalation(q, catalog, each) for each in sorted(rows, key=lambda each: each.about or ""))
    return [each for each in found if each is not None]


def _escalation(q: Queries, catalog: Catalog, row: AttentionRow) -> Escalation | None:
    """None while its run is active: no person is asked before that has stopped."""
    workflow, mutation = reads.workflow(q, row.workflow_id), reads.mutation(q, row.about or "")
    assert workflow is not None and mutation is not None, "it has just been listed"  # noqa: PT018
    run = reads.run(q, mutation.run_id)
    if run is not None and run.status is RunStatus.ACTIVE:
        return None
    name = f"{mutation.connector}.{mutation.method}"
    target, how, link = _said_by_the_connector(catalog, name, mutation)
    method = catalog.get(name)
    expected = expected_of(method.signature) if method is not None else None
    return Escalation(
        mutation_id=mutation.id,
        version=mutation.version,
        workflow_id=workflow.id,
        workflow=workflow.name,
        run_id=mutation.run_id,
        call=name,
        target=target,
        params=mutation.params,
        title=mutation.title,
        status=mutation.status,
        is_parked=run is not None and run.parked,
        why=mutation.error or "The process ended before the answer was recorded.",
        sent_at=mutation.sent_at,
        tried=_tried(reads.journal_of_run(q, mutation.run_id), mutation.id),
        can_check=mutation.reconcilable,
        next_check_at=mutation.next_reconcile_at,
        how_to_check=how,
        link=link,
        verdicts=_verdicts(mutation),
        noted=mutation.note,
        result_type=expected.type if expected is not None else "",
        result_example=expected.example if expected is not None else "",
    )


def _verdicts(mutation: Mutation) -> list[OpenVerdict]:
    """None while the call is being made: its outcome is open before it has ended."""
    if mutation.status is MutationStatus.IN_FLIGHT:
        return []
    may_try_again = mutation.reconcilable and mutation.status is MutationStatus.INDETERMINATE
    return [OpenVerdict(name, means.does) for name, means in VERDICTS.items() if name != "try_again" or may_try_again]


def _said_by_the_connector(catalog: Catalog, name: str, mutation: Mutation) -> tuple[Json, str, str | None]:
    """The target, how a person can check, and where. A connector that is not there any more says nothing."""
    method = catalog.get(name)
    if method is None:
        return mutation.params, "", None
    try:
        params = method.decode_params(mutation.params)
    except ParamsError:
        return mutation.params, method.check_hint, None
    call = MutationCall.of(mutation, params.values)
    target = method.identity_of(params) if method.identity else mutation.params
    return target, method.check_hint, method.check_url_of(call)


class _Changed(msgspec.Struct):
    mutation: str = ""
    mutation_status: str | list[str] = ""
    by: str = ""
    note: str = ""


def _tried(journal: list[JournalEntry], mutation_id: str) -> list[Tried]:
    lines: list[Tried] = []
    for entry in journal:
        changed = msgspec.json.decode(entry.changed, type=_Changed)
        if changed.mutation != mutation_id:
            continue
        if not changed.mutation_status:  # it was noted
            lines.append(Tried(entry.at, f"noted: {changed.note}"))
            continue
        status = changed.mutation_status
        now = status if isinstance(status, str) else status[-1]
        who = f" by {changed.by}" if changed.by else ""
        lines.append(Tried(entry.at, f"{now}{who}: {entry.why}" if entry.why else f"{now}{who}"))
    return lines
