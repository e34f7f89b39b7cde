"""`keep attention`: everything that waits for a person, with all that one needs to answer and what to type next."""

import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from keep_actors import views
from keep_actors.cli.changing import Runtime
from keep_actors.cli.exits import Exit
from keep_actors.cli.looking import Look, looking
from keep_actors.cli.options import control_option, looks, workflow_option
from keep_actors.cli.terminal import fields, json_line, plain, remark, show, style, when
from keep_actors.connectors import Catalog
from keep_actors.control.client import Lost, Refused
from keep_actors.control.protocol import Unknowns
from keep_actors.escalation import Escalation, escalations
from keep_actors.views import Attention, Question
from keep_storage import lookups, reads
from keep_storage.ids import Millis
from keep_storage.model import FailureClass, Workflow

_SIMPLE = re.compile(r"\w[\w .-]*")


class Waiting(msgspec.Struct, frozen=True):
    """One thing that waits for a person."""

    kind: str
    workflow_id: str
    workflow: str
    words: str
    run_id: str | None
    about: str | None
    can_do: str
    commands: list[str]
    """What can be typed to answer it."""
    call: Question | None = None
    """The call that waits for approval."""
    unknown: Escalation | None = None
    """The call whose outcome nobody knows."""


@click.command()
@workflow_option
@control_option
@looks
def attention(workflow: str | None, control: Path | None, db: Path, as_json: bool) -> None:
    """Show everything that waits for a person, and what to type to answer it.

    Titles are the script's own words and prove nothing: the call, its target and its parameters are what the host saw.
    A running runtime is asked what its connectors say about checking; without one, that is missing.

    Exits with 4 if something waits, with 0 if nothing does.

    \b
    keep attention --db keep.db
    keep attention --db keep.db --json | jq -r '.commands[]'
    keep attention --db keep.db > /dev/null || page-somebody
    """
    with looking(db) as look:
        only = look.workflow(workflow) if workflow is not None else None
        known = _asked(Runtime(db, control), only) if look.owner is not None else None
        found = list(_waiting(look, only, known))
        left = len(lookups.under_way(look.q)) if look.owner is None else 0
    if left:
        remark(
            f"{left} run(s) were under way when the last runtime ended. The next start settles them, and may ask more."
        )
    for each in found:
        if as_json:
            show(json_line(each))
        else:
            _show(each, look.now)
    if not found and not as_json:
        show("Nothing waits for a person.")
    sys.exit(Exit.WAITING if found else Exit.OK)


def _asked(runtime: Runtime, only: Workflow | None) -> list[Escalation] | None:
    """What the runtime says about unknown outcomes; None if it cannot be talked to, or does not say."""
    try:
        client = runtime.client()
        if client is None:
            return None
        with client:
            return client.ask(Unknowns(workflow=only.id if only else None), list[Escalation], timeout_s=10)
    except (click.ClickException, Refused, Lost) as error:
        remark(f"The runtime was not asked how to check: {error}")
        return None


def _waiting(look: Look, only: Workflow | None, known: list[Escalation] | None) -> Iterator[Waiting]:
    if known is None:
        known = escalations(look.q, Catalog([]), only.id if only else None)
    questions = {each.approval_id: each for each in views.approvals(look.q, only.id if only else None)}
    for each in views.attention(look.q) if only is None else views.attention_of(look.q, only):
        unknowns = [one for one in known if one.run_id == each.run_id] if each.kind == "unknown" else []
        for unknown in unknowns:
            yield _as_waiting(each, look, _verdicts(unknown, look.db), unknown=unknown)
        if not unknowns:
            question = questions.get(each.about or "")
            yield _as_waiting(each, look, _commands(each, look), question=question)


def _as_waiting(
    each: Attention,
    look: Look,
    commands: Iterable[str],
    *,
    question: Question | None = None,
    unknown: Escalation | None = None,
) -> Waiting:
    run_id = unknown.run_id if unknown is not None else each.run_id
    explain = [_line(look.db, "explain", run_id)] if run_id is not None else []
    return Waiting(
        kind=each.kind,
        workflow_id=each.workflow_id,
        workflow=each.workflow,
        words=each.words,
        run_id=run_id,
        about=unknown.mutation_id if unknown is not None else each.about,
        can_do=each.can_do,
        commands=[*commands, *explain],
        call=question,
        unknown=unknown,
    )


def _commands(each: Attention, look: Look) -> list[str]:
    name, about = _name(each.workflow, each.workflow_id), each.about or ""
    match each.kind:
        case "approval":
            refuse = _line(look.db, "reject", about)
            return [_line(look.db, "approve", about), f"{refuse} --why TEXT", f"{refuse} --skip --why TEXT"]
        case "repair":
            answers = [_line(look.db, "repair", word, name) for word in ("show", "accept", "refuse")]
            return [*answers[:2], f"{answers[2]} --why TEXT"]
        case "maintenance":
            return [f"{_line(look.db, 'deploy')} FILE.js", f"{_line(look.db, 'rollback', name)} VERSION"]
        case "unknown":
            return []
        case "error":
            return _after_error(each, look, name)


def _after_error(each: Attention, look: Look, name: str) -> list[str]:
    clear = f"{_line(look.db, 'clear-error', name)} --why TEXT"
    workflow = reads.workflow(look.q, each.workflow_id)
    if workflow is not None and workflow.error_class is FailureClass.PERMISSION:
        return [f"{_line(look.db, 'grant', name)} PERMISSION", clear]
    return [clear]


def _verdicts(unknown: Escalation, db: Path) -> list[str]:
    commands: list[str] = []
    for each in unknown.verdicts:
        command = _line(db, "resolve", unknown.mutation_id, each.verdict.replace("_", "-"))
        result = " --result JSON" if each.verdict == "happened" else ""
        commands.append(f"{command} --version {unknown.version} --why TEXT{result}")
    return commands


def _name(name: str, workflow_id: str) -> str:
    """A workflow in a command line: its name, unless a shell or an eye could take that for something else."""
    return name if _SIMPLE.fullmatch(name) else workflow_id


def _line(db: Path, command: str, *words: str) -> str:
    return shlex.join(["keep", command, "--db", str(db), *words])


def _show(each: Waiting, now: Millis) -> None:
    show(style(f"{plain(each.workflow, 100)}: {each.kind}", "red", bold=True))
    if each.unknown is not None:
        _show_unknown(each.unknown, now)
    elif each.call is not None:
        _show_call(each.call, now)
    else:
        fields([("what", each.words), ("can be done", each.can_do)], "  ")
    show("  type")
    for command in each.commands:
        show(f"    {plain(command)}")
    show()


def _show_call(question: Question, now: Millis) -> None:
    fields(
        [
            ("call", question.call),
            ("parameters", question.params),
            ("title (the script's words)", question.title),
            ("asked", when(question.asked_at, now)),
            ("expires", when(question.expires_at, now)),
        ],
        "  ",
    )


def _show_unknown(unknown: Escalation, now: Millis) -> None:
    checks = "the connector cannot be asked"
    if unknown.can_check:
        checks = (
            f"the connector is asked again {when(unknown.next_check_at, now)}" if unknown.next_check_at else "no more"
        )
    fields(
        [
            ("mutation", f"{unknown.mutation_id}, version {unknown.version}, {unknown.status}"),
            ("call", unknown.call),
            ("target", unknown.target),
            ("parameters", unknown.params),
            ("title (the script's words)", unknown.title),
            ("why nobody knows", unknown.why),
            ("stands still", "only what it is about (parked)" if unknown.is_parked else "the whole workflow"),
            ("sent", when(unknown.sent_at, now)),
            *(("tried", f"{when(tried.at, now)}: {tried.what}") for tried in unknown.tried),
            ("checks", checks),
            ("how to check", unknown.how_to_check or "look outside whether the call took effect"),
            ("link", unknown.link or ""),
            *((f"if {each.verdict.replace('_', '-')}", each.does) for each in unknown.verdicts),
        ],
        "  ",
    )
    if not unknown.verdicts:
        show("  The call is still under way: nothing can be said before it has ended.")
