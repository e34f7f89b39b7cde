"""Scripts that were proposed: `keep proposals` shows them, `keep propose` adds one, and a person accepts or rejects.

What was proposed is a stranger's: it is shown whole, with hidden characters spelled out, before it can be accepted.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from keep_actors.api import commands, proposal_views
from keep_actors.api.proposal_views import PermissionAsked, ProposedScript
from keep_actors.cli.authoring import problem_text
from keep_actors.cli.calls import asked_of_runtime
from keep_actors.cli.exit_codes import Exit, Stopped
from keep_actors.cli.inputs import (
    ChosenConnectors,
    connector_options,
    needs_sandbox,
    sandbox_option,
    script_file,
    source_of,
)
from keep_actors.cli.options import (
    changes,
    confirm,
    control_option,
    grant_options,
    help_of,
    limit_option,
    looks,
    workflow_option,
    yes_option,
)
from keep_actors.cli.proposing import problem_with, proposal_of
from keep_actors.cli.reader import FileReader, reading
from keep_actors.cli.scripts import activated
from keep_actors.cli.terminal import (
    age,
    brief,
    fields,
    json_line,
    plain,
    remark,
    show,
    show_commands,
    show_each,
    show_lines,
    style,
    table,
    when,
)
from keep_actors.cli.typed import line
from keep_actors.cli.write_path import WritePath
from keep_actors.text.counted import counted
from keep_storage import proposal_reads

if TYPE_CHECKING:
    from keep_actors.sandbox_pool.pool import PoolMode
    from keep_storage.model import ScriptProposal

_UNKNOWN = (
    "The permissions that it needs are not known: no runtime is running, or it does not answer. Name the connectors: "
    "--config KEEP.TOML or --connectors MODULE:NAME"
)
_OUTDATED = "It cannot be accepted: another script runs than the one that it was made from. Have it proposed again."


@click.command()
@click.argument("proposal", required=False)
@limit_option
@click.option("--before", metavar="PROPOSAL", help="Only older ones: the id of the last one shown.")
@connector_options
@sandbox_option
@control_option
@looks
def proposals(
    look: FileReader,
    proposal: str | None,
    limit: int,
    before: str | None,
    chosen: ChosenConnectors,
    sandbox: "PoolMode",
) -> None:
    """Show the scripts that were proposed, newest first; or one PROPOSAL, with the difference to the script that runs.

    One is shown whole, with the permissions that it needs and which of them are new. A running runtime knows its
    connectors and says so; without one, name them. The command that accepts it is shown only then.

    \b
    keep proposals --db keep.db
    keep proposals prp_1k7o9 --db keep.db
    keep proposals prp_1k7o9 --config keep.toml --db keep.db
    """
    if proposal is None:
        page = {} if before is None else {"before": before}
        _list(look, proposal_reads.proposals(look.q, limit=limit, **page))
        return
    found = _looked_at(look, look, look.one_id("proposal", proposal, "prp"), chosen, sandbox)
    if look.as_json:
        show(json_line({**msgspec.structs.asdict(found), "diff": found.diff}))
        return
    _show(found, look)
    if found.is_open:
        _show_answers(found, look.db)


@click.command(
    help=help_of(
        commands.Propose,
        'propose orders.js --workflow orders --note "it keeps the amount" --config keep.toml',
        "propose new.js --connectors examples.connectors:demo",
        more="It is checked first, as `keep check` does, and refused with its problems.",
    )
)
@click.argument("file", type=script_file(), metavar="FILE.js")
@workflow_option
@click.option("--from", "made_from", metavar="VERSION", help="It was made from this version. Default: what runs.")
@connector_options
@sandbox_option
@changes(commands.Propose, "proposal_id", "name", "source", "workflow_id", "base_version_id")
def propose(
    path: WritePath,
    file: Path,
    workflow: str | None,
    made_from: str | None,
    note: str,
    chosen: ChosenConnectors,
    sandbox: "PoolMode",
) -> None:
    if why := problem_with(path.by):
        raise click.UsageError(f"--by {path.by!a} {why}.")
    source = source_of(file)
    name = _checked(file, source, chosen, sandbox)
    with reading(path.db) as look:
        command = proposal_of(look, name, source, workflow=workflow or "", made_from=made_from, by=path.by, note=note)
    answer = path.ask(command)
    path.done(answer, f"{answer.id} waits for a person: {line(path.db, 'proposals', answer.id)}")


@click.command()
@click.argument("proposal")
@yes_option
@grant_options
@changes(commands.AcceptProposal, "proposal_id", "grants")
def accept_proposal(path: WritePath, proposal: str, yes: bool, **typed: Any) -> None:
    """Deploy a proposed script, with the permissions that are granted here and no others.

    It is a new workflow, or the next major version of one, by the author who proposed it. --accept grants everything
    that it names: what its workflow may call already keeps its limits, and whether it asks. --grant and --ask name the
    permissions one by one; all that it needs have to be among them.

    On a terminal the proposal is shown whole, and you are asked to confirm, unless you add --yes. Refused if another
    script runs since it was proposed.

    \b
    keep accept-proposal prp_1k7o9 --accept --db keep.db
    keep accept-proposal prp_1k7o9 --grant gmail.search --ask gmail.send --db keep.db
    """
    with reading(path.db) as look:
        proposal_id = look.one_id("proposal", proposal, "prp")
        if not yes and sys.stdin.isatty():
            _show(_looked_at(look, path, proposal_id), look, err=True)
            confirm("Accept it?", yes)
    answer = activated(path, commands.AcceptProposal(proposal_id=proposal_id, by=path.by, **typed))
    path.done(answer, f"{answer.name} runs version {answer.version}: {proposal_id} is accepted.")


@click.command(help=help_of(commands.RejectProposal, 'reject-proposal prp_1k7o9 --why "it drops the amount"'))
@click.argument("proposal")
@changes(commands.RejectProposal, "proposal_id", why="--why")
def reject_proposal(path: WritePath, proposal: str, why: str) -> None:
    with reading(path.db) as look:
        proposal_id = look.one_id("proposal", proposal, "prp")
    answer = path.ask(commands.RejectProposal(proposal_id=proposal_id, by=path.by, why=why))
    path.done(answer, f"{answer.id} is rejected. {answer.proposed_by} can read the reason.")


# Looking.


def _list(look: FileReader, found: "list[ScriptProposal]") -> None:
    if look.as_json:
        show_each(found)
        return
    if not found:
        show("No script was proposed.")
        return
    headings = ("PROPOSAL", "WHEN", "STATE", "WORKFLOW", "BY", "WORDS")
    table(headings, [_row(each, look) for each in found])


def _row(each: "ScriptProposal", look: FileReader) -> tuple[str, ...]:
    state = str(proposal_views.status_of(each, look.now))
    words = f"rejected: {each.reason}" if each.reason else each.note
    return each.id, age(each.proposed_at, look.now), state, each.name, each.proposed_by, brief(words, 80)


def _looked_at(
    look: FileReader,
    asked: WritePath | FileReader,
    proposal_id: str,
    chosen: ChosenConnectors | None = None,
    sandbox: "PoolMode" = "jailed",
) -> ProposedScript:
    """The words of a runtime about it, or those of the named connectors; without either, those of the file."""
    found = proposal_views.proposed_script(look.q, proposal_id, look.now)
    if not found.is_open:
        return found
    known = asked_of_runtime(asked, commands.ShowProposedScript(proposal_id=proposal_id))
    if known is not None:
        return known
    return _judged(found, chosen, sandbox) if chosen else found


def _judged(found: ProposedScript, chosen: ChosenConnectors, sandbox: "PoolMode") -> ProposedScript:
    import anyio

    from keep_actors import permissions
    from keep_actors.authoring.checking import check_scripts
    from keep_actors.connectors import Catalog

    connectors = chosen.load()
    with needs_sandbox():
        [checked] = anyio.run(check_scripts, [found.proposal.source], connectors, sandbox)
    problems = [f"{each.message} [{each.code}]" for each in checked.problems]
    return proposal_views.judged(found, checked.name, permissions.needed(checked.uses, Catalog(connectors)), problems)


def _checked(file: Path, source: str, chosen: ChosenConnectors, sandbox: "PoolMode") -> str:
    """The name of the script. Ends the command with its problems, if it has some."""
    import anyio

    from keep_actors.authoring.checking import check_scripts

    connectors = chosen.load() if chosen else None
    with needs_sandbox():
        [checked] = anyio.run(check_scripts, [source], connectors, sandbox)
    if checked.problems:
        for each in checked.problems:
            show(problem_text(file, source, each, err=True), err=True)
        raise Stopped(Exit.WRONG, f"{file} has {counted(checked.count, 'problem')} and was not proposed.")
    if connectors is None and checked.uses:
        remark("note: no connectors were named, so their methods were not checked: --connectors MODULE:NAME")
    return checked.name


def _show(found: ProposedScript, look: FileReader, *, err: bool = False) -> None:
    each = found.proposal
    place = f"{each.name} ({found.workflow_id})" if found.workflow_id is not None else f"{each.name}, a new one"
    decided = f"by {each.decided_by or 'nobody'}, {when(each.decided_at, look.now)}" if each.decided_at else ""
    fields(
        [
            ("proposal", f"{each.id}, {found.status}"),
            ("workflow", place),
            ("runs now", found.version or ""),
            ("proposed by", f"{each.proposed_by}, {when(each.proposed_at, look.now)}"),
            ("expires", when(each.expires_at, look.now) if found.is_open else ""),
            ("decided", decided),
            ("reason", each.reason),
            ("who proposes says", each.note),
        ],
        err=err,
    )
    if not found.is_open:
        return
    if found.is_outdated:
        show(style(_OUTDATED, "red", err=err), err=err)
    for problem in found.problems:
        show(style(plain(f"It cannot be deployed: {problem}"), "red", err=err), err=err)
    _show_needs(found, err=err)
    # All of it: behind a long line, something unread could wait.
    show_lines(found.diff, err=err)


def _show_needs(found: ProposedScript, *, err: bool) -> None:
    if found.needs is None:
        show(_UNKNOWN, err=err)
    elif not found.needs:
        show("It needs no permissions.", err=err)
    else:
        show("It needs these permissions:", err=err)
        for each in found.needs:
            show(style(f"  {plain(_need(each))}", "yellow" if each.granted is None else "white", err=err), err=err)


def _need(each: PermissionAsked) -> str:
    what = "changes the outside" if each.mutates else "reads"
    has = "NEW" if each.granted is None else f"granted already ({each.granted.policy} {each.granted.limits})"
    return f"{each.permission}  {has}: risk {each.risk}, {what}, {', '.join(f'ctx.{name}' for name in each.methods)}"


def _show_answers(found: ProposedScript, db: Path) -> None:
    """The command that accepts it only if all of it was shown, and if it can be accepted."""
    answers = [f"{line(db, 'reject-proposal', found.proposal.id)} --why TEXT"]
    if found.needs is not None and not found.is_outdated and not found.problems:
        accept = line(db, "accept-proposal", found.proposal.id)
        answers.insert(0, f"{accept} --accept" if found.needs else accept)
    show_commands(answers)
