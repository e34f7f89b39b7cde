"""`keep certify`: try a connector on a real service that fails, and show what held."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from keep_actors.cli.exit_codes import Exit
from keep_actors.cli.inputs import import_from_here_last
from keep_actors.cli.options import json_option
from keep_actors.cli.terminal import json_line, plain, show, style, table

if TYPE_CHECKING:
    from keep_actors.testing.certification import CertificationRow, CertificationTable, RowResult

_COLOURS: Final = {"held": "green", "failed": "red", "does not apply": "white"}


class RowLine(msgspec.Struct, frozen=True):
    """One row of one mutation, as `--json` shows it."""

    method: str
    row: str
    outcome: str
    mishap: str
    seen: str
    why: str
    took_ms: int


@click.command()
@click.argument("subject", metavar="MODULE:CLASS")
@click.option("--only", multiple=True, metavar="ROW", help="Only this row. Can be repeated; `plain` is always made.")
@click.option(
    "--badge",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.svg",
    help="Write the outcome as a picture for a README.",
)
@json_option
def certify(subject: str, only: tuple[str, ...], badge: Path | None, as_json: bool) -> None:
    """Try a connector against a real service that fails in every way, and show what held.

    \b
    keep certify parcels:Parcels
    keep certify test_parcels:ParcelsCertification --only lost-answer --only late-commit

    The class is a certification, or a connector that has one in its module, or in the module of its tests (parcels:
    test_parcels). A certification starts a service that is for tests and counts effects there. For each mutation,
    requests and answers are lost, late and doubled on the network, calls are cancelled, and whole runtimes are killed
    around a call. The exit code is 1 if a row failed.
    """
    import anyio

    from keep_actors.testing.certification import certify as certify_rows
    from keep_actors.testing.certification.badge import badge as drawn
    from keep_actors.testing.certification.loading import CertificationLoadError, load_certification

    rows = _rows(only)
    import_from_here_last()
    try:
        certification, connector_class = load_certification(subject)
    except CertificationLoadError as error:
        raise click.UsageError(str(error)) from None

    async def run() -> "CertificationTable":
        on_row = _show_line if as_json else _show_progress
        return await certify_rows(certification, only=rows, on_row=on_row, connector_class=connector_class)

    with _quiet(), _plainly(subject):
        done = anyio.run(run)
    if not as_json:
        _show(done)
    if badge is not None:
        _write(badge, drawn(done))
    if done.failed:
        raise click.exceptions.Exit(Exit.WRONG)


def _rows(names: tuple[str, ...]) -> "list[CertificationRow]":
    from keep_actors.testing.certification import CertificationRow

    for name in names:
        if name not in set(CertificationRow):
            raise click.UsageError(f"There is no row {name!r}; there are: {', '.join(CertificationRow)}.")
    return [CertificationRow(name) for name in names]


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing: errors of connectors are expected here, and are in the table."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _plainly(subject: str) -> Iterator[None]:
    """Say that the service did not start in words, and not with a traceback of ours."""
    from keep_actors.kernel.foreign_code import attempt, described
    from keep_actors.testing.certification.suite import first_of

    with attempt() as tried:
        yield
    if tried.error is not None:
        raise click.ClickException(f"{subject} could not be tried: {described(first_of(tried.error))}") from tried.error


def _show_line(result: "RowResult") -> None:
    show(
        json_line(
            RowLine(
                method=result.method,
                row=result.row,
                outcome=result.outcome,
                mishap=result.mishap,
                seen=result.seen,
                why=result.why,
                took_ms=result.took_ms,
            )
        )
    )


def _show_progress(result: "RowResult") -> None:
    from sys import stderr

    if stderr.isatty():
        outcome = style(result.outcome, _COLOURS[result.outcome], err=True)
        show(f"{plain(result.method)} {result.row}: {outcome}", err=True)


def _show(done: "CertificationTable") -> None:
    table(
        ("METHOD", "ROW", "OUTCOME", "TOOK", "SEEN"),
        [(each.method, each.row, each.outcome, f"{each.took_ms} ms", each.seen) for each in done.results],
    )
    for each in done.failed:
        show(f"\n{plain(each.method)}: {style(f'{each.row} failed', 'red')}")
        show(f"  tried  {each.mishap}")
        show(f"  seen   {plain(each.seen)}")
        show(f"  why    {each.why}")
    show(f"\n{plain(done.connector)}: {done.counts}; it took {done.took_ms / 1000:.1f} s")


def _write(path: Path, svg: str) -> None:
    try:
        path.write_text(svg, "utf-8")
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from None
