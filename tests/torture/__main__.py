"""`python -m tests.torture --minutes M [--seed S] [--folder F]`. Exits with 1 if anything is lost, doubled, untrue."""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.torture.torture import Told, Torture

EVERY_S: Final = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="Kill a runtime, again and again.")
    parser.add_argument("--minutes", type=float, required=True, help="how long; the last life may take longer")
    parser.add_argument("--seed", type=int, help="of everything that is random but the machine; printed if not given")
    parser.add_argument(
        "--folder",
        type=Path,
        help="an empty folder to work in; kept, as any is if something is wrong",
    )
    chosen = parser.parse_args()
    seed = chosen.seed if chosen.seed is not None else random.randrange(1_000_000)
    say(f"seed {seed}, {chosen.minutes:g} minutes")
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix="torture-"))
    folder.mkdir(exist_ok=True)
    if any(folder.iterdir()):
        parser.error(f"{folder} is not empty: the records of two tortures cannot be told apart")
    code = report(Torture(folder, seed, say).go_on_while(for_so_long(chosen.minutes)), seed, folder)
    if code == 0 and not chosen.folder:
        shutil.rmtree(folder)
    return code


def report(told: Told, seed: int, folder: Path) -> int:
    """Print the figures and everything that is wrong. Returns the exit code."""
    width = max(len(name) for name in told.figures)
    for name, figure in told.figures.items():
        print(f"{name:{width}}  {figure:>9,}")
    for problem in told.problems:
        print(f"WRONG  {problem}")
    if told.problems:
        print(f"seed {seed}: {len(told.problems)} WRONG, see {folder}")
        return 1
    print(f"seed {seed}: nothing lost, repeated or untrue")
    return 0


def for_so_long(minutes: float) -> Callable[[int], bool]:
    began = said = time.monotonic()

    def wanted(kills: int) -> bool:
        nonlocal said
        now = time.monotonic()
        if now - said > EVERY_S:
            said = now
            say(f"{(now - began) / 60:.1f} of {minutes:g} minutes, {kills} kills")
        return now - began < minutes * 60

    return wanted


def say(words: str) -> None:
    print(f"torture: {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
