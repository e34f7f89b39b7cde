"""`keep attention`: all that waits for a person, with what one needs to answer it and the command lines to type."""

import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from keep_actors.api import views
from keep_actors.api.attention import Attention, attention_of
from keep_actors.api.attention import attention as all_attention
from keep_actors.api.commands import Unknowns
from keep_actors.api.escalation import escalations
from keep_actors.api.overdue import Moment
from keep_actors.api.verdicts import Escalation
from keep_actors.api.views import ApprovalQuestion
from keep_actors.cli.calls import Names, asked_names, asked_of_runtime, is_whole, show_parameters
from keep_actors.cli.exit_codes import Exit
from keep_actors.cli.options import control_option, full_option, looks, workflow_option
from keep_actors.cli.reader import FileReader
from keep_actors.cli.terminal import TITLE, fields, plain, remark, show, show_commands, show_each, style, when
from keep_actors.cli.typed import TYPED_VERDICTS, answers_to_call, answers_to_item
from keep_actors.cli.typed import line as _line
from keep_actors.cli.typed import workflow_word as _name
from keep_actors.connectors import Catalog
from keep_actors.text.call_text import preview
from keep_actors.text.counted import counted
from keep_storage import lookups, reads
from keep_storage.model import AttentionKind, FailureClass, ItemState, Workflow


class Waiting(msgspec.Struct, frozen=True):
    """A matter that waits for a person."""

    kind: str
    workflow_id: str
    workflow: str
    words: str
    run_id: str | None
    about: str | None
    can_do: str
    item: str | None
    """The item of a job that needs a decision."""
    commands: list[str]
    """Command lines that answer it."""
    call: ApprovalQuestion | None = None
    """The call that waits for approval."""
    unknown: Escalation | None = None
    """The call whose outcome is unknown."""
    together: list[str] = []
    """Command lines that answer all calls of this method and workflow at once, if several of them wait."""


@click.command()
@workflow_option
@full_option
@control_option
@looks
def attention(look: FileReader, workflow: str | None, full: bool) -> None:
    """Show everything that waits for a person, with the commands that answer it.

    Titles are the script's own words and prove nothing: the call, its target and its parameters are what the host saw.
    Each parameter has its line, and a long one is cut; the command that approves a call is shown only with the whole
    call, with --full if need be. The order of parameters and the hints for checking come from a running runtime;
    without one they are missing.

    Exits with 4 if something waits, with 0 if nothing does.

    \b
    keep attention --db keep.db
    keep attention --full --db keep.db
    keep attention --db keep.db --json | jq -r '.commands[]'
    keep attention --db keep.db > /dev/null || page-somebody
    """
    only = look.workflow(workflow) if workflow is not None else None
    found = list(_waiting(look, only, _asked(look, only)))
    left = 0 if look.is_owned else len(lookups.under_way(look.q))
    if left:
        remark(
            f"{counted(left, 'run')} of the last runtime did not finish. The next start settles them, and may find more"
            " that waits for a person."
        )
    if look.as_json:
        show_each(found)
    else:
        calls = [about.call for each in found if (about := each.call or each.unknown) is not None]
        shown = _Shown(look, asked_names(look, calls), full)
        for each in found:
            shown.show(each)
        shown.show_together(found)
        if not found:
            show("Nothing waits for a person.")
    sys.exit(Exit.WAITING if found else Exit.OK)


def _asked(look: FileReader, only: Workflow | None) -> list[Escalation] | None:
    """The runtime's words about unknown outcomes; None if it cannot be reached, or does not say."""
    return asked_of_runtime(
        look,
        Unknowns(workflow=only.id if only else None),
        lambda error: remark(f"The runtime could not be asked how to check: {error}"),
    )


def _waiting(look: FileReader, only: Workflow | None, known: list[Escalation] | None) -> Iterator[Waiting]:
    if known is None:
        known = escalations(look.q, Catalog([]), only.id if only else None)
    questions = {each.approval_id: each for each in views.approvals(look.q, only.id if only else None)}
    kinds = Counter((each.workflow_id, each.call) for each in questions.values())
    at = Moment(look.now, is_owned=look.is_owned)
    for each in all_attention(look.q, at) if only is None else attention_of(look.q, only, at):
        unknowns = [one for one in known if one.run_id == each.run_id] if each.kind is AttentionKind.UNKNOWN else []
        for unknown in unknowns:
            yield _as_waiting(each, look, _verdicts(unknown, look.db), unknown=unknown)
        if not unknowns:
            question = questions.get(each.about or "")
            together: list[str] = []
            if question is not None and kinds[question.workflow_id, question.call] > 1:
                together = _together(each, question.call, look.db)
            yield _as_waiting(each, look, _commands(each, look), question=question, together=together)


def _as_waiting(
    each: Attention,
    look: FileReader,
    commands: Iterable[str],
    *,
    question: ApprovalQuestion | None = None,
    unknown: Escalation | None = None,
    together: Iterable[str] = (),
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
        item=each.item,
        commands=[*commands, *explain],
        call=question,
        unknown=unknown,
        together=list(together),
    )


def _together(each: Attention, call: str, db: Path) -> list[str]:
    """Command lines that answer all calls of this method and workflow at once."""
    which = ("--all", "--workflow", _name(each.workflow, each.workflow_id), "--call", call)
    return [_line(db, "approve", *which), f"{_line(db, 'reject', *which)} --why TEXT"]


def _commands(each: Attention, look: FileReader) -> list[str]:
    name, about = _name(each.workflow, each.workflow_id), each.about or ""
    match each.kind:
        case AttentionKind.APPROVAL:
            return answers_to_call(look.db, about)
        case AttentionKind.REPAIR:
            accept = _line(look.db, "repair accept", name, about)
            return [
                _line(look.db, "repair show", name),
                accept,
                f"{_line(look.db, 'repair refuse', name)} --why TEXT",
            ]
        case AttentionKind.PROPOSAL:
            # How to accept it is shown with the whole of it.
            reject = _line(look.db, "reject-proposal", about)
            return [_line(look.db, "proposals", about), f"{reject} --why TEXT"]
        case AttentionKind.MAINTENANCE:
            deploy = _line(look.db, "deploy", "--workflow", name)
            return [f"{deploy} FILE.js", f"{_line(look.db, 'rollback', name)} VERSION"]
        case AttentionKind.UNKNOWN:
            # A call that a process left behind: a running one knows better, and no verdict is taken then.
            return [] if look.is_owned else _plain_verdicts(about, look.db)
        case AttentionKind.FAILING:
            return [_line(look.db, "status", name)]
        case AttentionKind.EXPIRED:
            return [_line(look.db, "explain", about)]
        case AttentionKind.STALE:
            return [f"{_line(look.db, 'skip-event', name, about)} MESSAGE_ID --why TEXT"]
        case AttentionKind.ERROR:
            return _after_error(each, look, name)


def _after_error(each: Attention, look: FileReader, name: str) -> list[str]:
    clear = f"{_line(look.db, 'clear-error', name)} --why TEXT"
    workflow = reads.workflow(look.q, each.workflow_id)
    if workflow is not None and workflow.error_class is FailureClass.PERMISSION:
        return [f"{_line(look.db, 'grant', name)} PERMISSION", clear]
    if each.item is not None:
        return [*answers_to_item(look.db, name, each.item, ItemState.NEEDS_ATTENTION), clear]
    return [clear]


def _verdicts(unknown: Escalation, db: Path) -> list[str]:
    commands: list[str] = []
    for each in unknown.verdicts:
        command = _line(db, "resolve", unknown.mutation_id, TYPED_VERDICTS[each.verdict])
        result = _result_option(unknown) if each.verdict == "happened" else ""
        commands.append(f"{command} --version {unknown.version} --why TEXT{result}")
    return commands


def _plain_verdicts(mutation_id: str, db: Path) -> list[str]:
    answers = [typed for verdict, typed in TYPED_VERDICTS.items() if verdict != "try_again"]
    return [f"{_line(db, 'resolve', mutation_id, each)} --why TEXT" for each in answers]


def _result_option(unknown: Escalation) -> str:
    """The option that `happened` needs, to be filled in; none if the call returns nothing."""
    if unknown.result_type == "null":
        return ""
    return f" --result {shlex.quote(unknown.result_example) if unknown.result_example else 'JSON'}"


class _Shown:
    """Shows matters to people: calls whole (`full`), or each parameter cut by itself."""

    def __init__(self, look: FileReader, names: Names, full: bool) -> None:
        self._look = look
        self._names = names
        self._full = full

    def show(self, each: Waiting) -> None:
        show(style(f"{plain(each.workflow, 100)}: {each.kind}", "red", bold=True))
        commands = each.commands
        if each.unknown is not None:
            self._show_unknown(each.unknown)
        elif each.call is not None:
            if not self._show_call(each.call):
                commands = commands[1:]
        else:
            fields([("what", each.words), ("can be done", each.can_do)], "  ")
        show_commands(commands)
        show()

    def show_together(self, found: list[Waiting]) -> None:
        """Command lines that answer several calls at once, below all of them: yes only to what was shown whole."""
        kinds = Counter(command for each in found for command in each.together)
        if not kinds:
            return
        unseen = {each.together[0] for each in found if each.together and not self._is_whole(each)}
        calls = sum(each.call is not None for each in found)
        show(f"{calls:,} calls wait for approval. To answer several at once (you are asked, with their number), type")
        for command, count in kinds.items():
            if command not in unseen:
                show(f"    {plain(command)}   # {count:,} calls")
        if unseen:
            show("Not all of these calls are shown whole. To approve several at once, see them first:")
            show(f"    {plain(_line(self._look.db, 'attention'))} --full")

    def _is_whole(self, each: Waiting) -> bool:
        return self._full or each.call is None or is_whole(each.call.params)

    def _show_call(self, question: ApprovalQuestion) -> bool:
        """Returns whether all of it was shown."""
        now = self._look.now
        whole = self._show_parameters(question.call, question.params)
        fields(
            [
                (TITLE, question.title),
                ("asked", when(question.asked_at, now)),
                ("expires", when(question.expires_at, now)),
            ],
            "  ",
        )
        if not whole:
            show("  This call is not shown whole. Before it can be approved, see all of it:")
            show(f"    {plain(_line(self._look.db, 'explain', question.approval_id))} --full")
        return whole

    def _show_parameters(self, call: str, params: str, target: str = "") -> bool:
        named = [("call", call), ("target", target), ("parameters", self._names.said(call))]
        fields(named, "  ", len(TITLE))
        return show_parameters(call, params, self._names, "    ", full=self._full)

    def _show_unknown(self, unknown: Escalation) -> None:
        now = self._look.now
        fields([("mutation", f"{unknown.mutation_id}, version {unknown.version}, {unknown.status}")], "  ", len(TITLE))
        target = preview(unknown.target, self._names.of(unknown.call))
        whole = self._show_parameters(unknown.call, unknown.params, target)
        checks = "the connector cannot be asked"
        if unknown.can_check:
            again = f"the connector is asked again {when(unknown.next_check_at, now)}"
            checks = again if unknown.next_check_at else "no more"
        fields(
            [
                (TITLE, unknown.title),
                ("why it is unknown", unknown.why),
                ("blocked", "only its own events or item (parked)" if unknown.is_parked else "the whole workflow"),
                ("sent", when(unknown.sent_at, now)),
                *(("tried", f"{when(tried.at, now)}: {tried.what}") for tried in unknown.tried),
                ("checks", checks),
                ("noted", unknown.noted),
                ("how to check", unknown.how_to_check or "look outside whether the call took effect"),
                ("link", unknown.link or ""),
                ("returns", _returns(unknown)),
                *((f"if {TYPED_VERDICTS[each.verdict]}", each.does) for each in unknown.verdicts),
            ],
            "  ",
        )
        if not whole:
            show(f"  This call is not shown whole: {plain(_line(self._look.db, 'attention'))} --full")
        if not unknown.verdicts:
            show("  The call is still being made: it can be answered once it has ended.")


def _returns(unknown: Escalation) -> str:
    """The shape of the result that `happened` takes."""
    if not unknown.result_type:
        return ""
    example = f", for example {unknown.result_example}" if unknown.result_example else ""
    return f"{unknown.result_type}{example if unknown.result_type != 'null' else ''}"
