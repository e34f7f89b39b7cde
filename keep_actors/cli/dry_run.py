"""`keep dry-run`: what a script would do with the events that really wait for it. Nothing is done."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from keep_actors.cli.calls import lines_of
from keep_actors.cli.inputs import (
    ChosenConnectors,
    connector_options,
    needs_sandbox,
    sandbox_option,
    script_file,
    source_of,
)
from keep_actors.cli.options import json_object_option
from keep_actors.cli.reader import readable
from keep_actors.cli.terminal import json_line, plain, remark, show, style
from keep_actors.text.call_text import call_text
from keep_actors.text.counted import counted

if TYPE_CHECKING:
    from keep_actors.authoring.dry_run import Difference, Rehearsal, Report, Simulated, WantedCall
    from keep_actors.sandbox_pool.pool import PoolMode

_MARKS = {"same": "=", "changed": "~", "only old": "-", "only new": "+"}
_COLOURS = {"allowed": "green", "asked": "yellow", "refused": "red"}
_SAYS = {"allowed": "allowed", "asked": "a person is asked first", "refused": "refused"}
_RESTS = {
    "nothing": "nothing is left",
    "sleeps": "it reserves nothing, and sleeps",
    "failed": "it would stop here",
    "limit": "no more runs are shown: --limit",
}


@click.command()
@click.argument("file", type=script_file(), metavar="FILE.js")
@click.option("--db", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True, help="The database.")
@connector_options
@click.option("--workflow", help="The workflow, by name or id, if it runs another script now.")
@click.option(
    "--author", default="", help="The author of the script. Without grants if the newest version has another."
)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Runs to show at most.")
@click.option("--against", metavar="VERSION", help="Compare with this version from the database, as in 1.2.")
@click.option("--producer", metavar="NAME", help="Show what this producer would publish, instead of consumers.")
@click.option("--reads/--no-reads", "call_reads", default=True, help="Make real reads, or none.  [default: reads]")
@click.option(
    "--grant", "granted", multiple=True, metavar="PERMISSION", help="Treat this permission as granted. Can be repeated."
)
@json_object_option
@sandbox_option
def dry_run(
    file: Path,
    db: Path,
    chosen: ChosenConnectors,
    workflow: str | None,
    author: str,
    limit: int,
    against: str | None,
    producer: str | None,
    call_reads: bool,
    granted: tuple[str, ...],
    as_json: bool,
    sandbox: "PoolMode",
) -> None:
    """Show what a script would do with the pending events of a database, without doing it.

    `prepare` and `mutate` run on the real events of the workflow, run after run, up to the call that `mutate` wants;
    the call is shown and not made. The database is only read; a runtime may use it meanwhile. Reads go to the real
    connectors, because `prepare` decides by them, unless --no-reads.

    --workflow says which workflow is meant, as for `keep deploy`: the script reads with its grants.

    `next` is not run: it would need the answer of a call that was not made. Jobs are not dry-run.

    \b
    keep dry-run new.js --workflow mails --db keep.db --connectors examples.connectors:demo
    keep dry-run new.js --workflow mails --db keep.db --connectors examples.connectors:demo --against 1.2
    keep dry-run new.js --workflow mails --db keep.db --connectors examples.connectors:demo --producer poll

    Exits with 0; with 1 when a run would fail, a call would be refused, or the script could not be deployed; with 2
    for a wrong use of this command.
    """
    import anyio

    from keep_actors.authoring import dry_run as trying
    from keep_actors.authoring.admission import DeployRefused
    from keep_actors.connectors import ConnectorDefinitionError, ConnectorNotOpened
    from keep_storage import StorageError

    source = source_of(file)
    work = partial(
        trying.dry_run,
        source,
        db,
        chosen.load(),
        workflow=workflow,
        author=author,
        against=against,
        producer=producer,
        limit=limit,
        call_reads=call_reads,
        grants=granted,
        sandbox=sandbox,
    )
    with readable(db), needs_sandbox():
        try:
            report = anyio.run(work)
        except DeployRefused as refused:
            _show_problems(file, source, refused)
        except (ConnectorDefinitionError, ValueError) as error:
            raise click.UsageError(str(error)) from None
        except (trying.DryRunRefused, ConnectorNotOpened, StorageError) as error:
            raise click.ClickException(plain(str(error))) from None
        else:
            show(_json(report) if as_json else _text(report))
            sys.exit(0 if report.new.is_well else 1)
    sys.exit(1)


def _show_problems(file: Path, source: str, refused: Any) -> None:
    from keep_actors.cli.authoring import problem_text

    for problem in refused.problems:
        show(problem_text(file, source, problem, err=True), err=True)
    remark(f"{plain(str(file))}: {counted(refused.count, 'error')}; it could not be deployed")


def _json(report: "Report") -> str:
    import msgspec

    from keep_actors.authoring.dry_run import compare

    found = compare(report.old, report.new) if report.old is not None else None
    return json_line({**msgspec.structs.asdict(report), "differences": found})


def _text(report: "Report") -> str:
    from keep_actors.authoring.dry_run import compare

    lines: list[str] = []
    if report.producer is not None:
        both = [report.new] if report.old is None else [report.old, report.new]
        for each in both:
            lines += [f"{plain(report.workflow)} {each.version}, producer {plain(report.producer)}:", *_produced(each)]
    elif report.old is None:
        lines += [*_consumed(report.new)]
    else:
        found = compare(report.old, report.new)
        lines += [line for each in found for line in _differs(each)]
        counts = ", ".join(f"{sum(each.kind == kind for each in found)} {kind}" for kind in _MARKS)
        lines.append(f"{report.old.version} and {report.new.version}: {counts}")
        lines += [f"{each.version}: {line}" for each in (report.old, report.new) for line in _ends(each)]
        lines += [line for run in report.new.runs if run.failure for line in _run(run)]
    lines.append("No call was made and nothing was written." + ("" if report.producer else " `next` was not run."))
    if report.not_run:
        lines.append(f"Jobs are not dry-run: {', '.join(map(plain, report.not_run))}.")
    return "\n".join(lines)


def _consumed(rehearsal: "Rehearsal") -> list[str]:
    return [line for run in rehearsal.runs for line in _run(run)] + _ends(rehearsal)


def _run(run: "Simulated") -> list[str]:
    head = f"{plain(run.handler)}: {plain(run.title)}" if run.title else plain(run.handler)
    lines = [
        head,
        *(f"  takes   {plain(each.topic)} {plain(each.message_id)}: {plain(each.title)}" for each in run.events),
    ]
    if run.wants is not None:
        lines += _call("  calls   ", run.wants)
    elif run.failure is None and run.events:
        lines.append("  calls   nothing")
    if run.failure is not None:
        place = f" at {run.failure.place}" if run.failure.place else ""
        said = style(f"{run.failure.cls}{plain(place)}", "red")
        lines.append(f"  fails   {said}: {plain(run.failure.message)}")
    if run.wake_at is not None:
        lines.append(f"  wakes   {_clock(run.wake_at)}")
    return lines + [f"  logs    {plain(line)}" for line in run.logs]


def _call(head: str, wanted: "WantedCall") -> list[str]:
    verdict = style(_SAYS[wanted.verdict], _COLOURS[wanted.verdict])
    why = f": {plain(wanted.why)}" if wanted.why else ""
    text = call_text(bytes(wanted.params).decode(), wanted.names or None)
    return [f"{head}{plain(wanted.call)}  [{verdict}{why}]", *lines_of(text, " " * (len(head) + 2))]


def _ends(rehearsal: "Rehearsal") -> list[str]:
    return [
        f"{plain(each.handler)}: {each.pending}{'+' if each.is_more else ''} events left; {_RESTS[each.rest]}"
        for each in rehearsal.ends
    ]


def _differs(found: "Difference") -> list[str]:
    what = ", ".join(f"{plain(each.topic)} {plain(each.message_id)}" for each in found.events)
    lines = [f"{_MARKS[found.kind]} {plain(found.handler)}: {what}"]
    if found.kind == "same" and found.new is not None:
        return [*lines, *_call("    ", found.new)]
    for head, wanted, colour in (("  - ", found.old, "red"), ("  + ", found.new, "green")):
        lines += [style(line, colour) for line in _call(head, wanted)] if wanted is not None else []
    return lines


def _produced(rehearsal: "Rehearsal") -> list[str]:
    says = {"new": "new", "replaces": "replaces a pending event", "known": "known already: nothing happens"}
    lines = [
        f"  publishes {plain(each.topic)} {plain(each.message_id)}: {plain(each.title)} "
        f"{plain(bytes(each.payload).decode())}  [{says[each.arrival]}]"
        for each in rehearsal.published
    ]
    if rehearsal.failure is not None:
        lines.append(f"  fails   {rehearsal.failure.cls}: {plain(rehearsal.failure.message)}")
    elif not lines:
        lines.append("  publishes nothing")
    if rehearsal.state is not None:
        lines.append(f"  keeps   {plain(bytes(rehearsal.state).decode())}")
    return lines + [f"  logs    {plain(line)}" for line in rehearsal.logs]


def _clock(at: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
