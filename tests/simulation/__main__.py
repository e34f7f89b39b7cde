"""`python -m tests.simulation --seeds 1000 --seed 0 --minutes 10`: many stories, and the first that fails, shrunk."""

import logging
import sys
import time

import click
import msgspec

from tests.simulation import report
from tests.simulation.many import many
from tests.simulation.shrink import shrink
from tests.simulation.story import Told, tell
from tests.simulation.weather import Climate


@click.command()
@click.option("--seeds", default=1_000, show_default=True, help="How many seeds.")
@click.option("--seed", default=0, show_default=True, help="The first of them.")
@click.option("--minutes", default=None, type=float, help="Begin no more seeds after so long.")
@click.option("--jobs", default=None, type=int, help="Processes to use. All cores unless it is said.")
@click.option("--failures", default=1, show_default=True, help="Go on until so many have failed.")
@click.option("--show", default=None, type=int, help="Print the story of one seed instead.")
@click.option("--climate", default=None, help="With --show: what may happen in it, as a report has printed it.")
def main(
    seeds: int,
    seed: int,
    minutes: float | None,
    jobs: int | None,
    failures: int,
    show: int | None,
    climate: str | None,
) -> None:
    """Simulate whole runtimes. Ends with 1 if a promise was broken."""
    if show is not None:
        _show(show, climate)
        return
    began = time.monotonic()
    seconds = None if minutes is None else 60 * minutes
    total = many(
        seed,
        seeds,
        seconds=seconds,
        jobs=jobs,
        failures_max=failures,
        progress=lambda *so_far: _progress(seeds, *so_far),
    )
    click.echo("", err=True)
    click.echo(report.figures(total.figures, len(total.failed), time.monotonic() - began))
    if total.failed:
        logging.disable(logging.CRITICAL)
        first = total.failed[0]
        click.echo(f"\nseed {first.seed} failed; making it shorter …", err=True)
        click.echo(report.story(shrink(first), first))
        sys.exit(1)


def _progress(seeds: int, done: int, elapsed: float, failed: list[Told]) -> None:
    for each in failed:
        click.echo(f"seed {each.seed} failed: {each.violation}", err=True)
    rate = done / elapsed if elapsed else 0
    left = (seeds - done) / rate if rate else 0
    said = f"{done:>8,} of {seeds:,} seeds  {rate:>6.1f}/s  {left:>6.0f} s left"
    click.echo(f"\r{said}" if sys.stderr.isatty() else said, err=True, nl=not sys.stderr.isatty())


def _show(seed: int, climate: str | None) -> None:
    logging.disable(logging.CRITICAL)
    told = tell(seed, msgspec.json.decode(climate, type=Climate) if climate else None)
    click.echo("\n".join(told.trace))
    if told.violation:
        click.echo(f"seed {seed}: {told.violation}")
        sys.exit(1)


if __name__ == "__main__":
    main()
