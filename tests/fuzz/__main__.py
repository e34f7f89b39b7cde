"""`python -m tests.fuzz NAME --minutes N`: fuzz one target, or with `all` each of them, for so long.

Ends with 1 if an input does harm. It is written into `tests/fuzz/corpus/NAME`, as small as it could be made, and shown
with its traceback: from then on every run tries it first.
"""

import argparse
import random
import sys
import time

from tests.fuzz import campaign
from tests.fuzz.campaign import tell
from tests.fuzz.targets import targets

_SHOWN_BYTES = 2_000


def main() -> int:
    known = targets()
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "name", choices=[*known, "all"], help="; ".join(f"{each.name}: {each.about}" for each in known.values())
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target (1)")
    parser.add_argument("--seed", type=int, help="the number that the inputs are made from (any)")
    parser.add_argument("--at-once", type=int, default=2, help="how many targets at a time (2)")
    asked = parser.parse_args()
    number = random.randrange(10**9) if asked.seed is None else asked.seed
    began = time.monotonic()
    names = [*known] if asked.name == "all" else [asked.name]
    results = campaign.run(names, asked.minutes * 60, number, asked.at_once)
    failed = [result for result in results if result.error]
    for result in failed:
        tell(f"\n{result.name}, seed {number}: {result.error}")
        if result.file:
            tell(f"{result.file}:\n{result.file.read_bytes()[:_SHOWN_BYTES]!r}")
    inputs = sum(result.tried for result in results)
    tell(
        f"{len(results)}{' target' if len(results) == 1 else ' targets'}, {inputs:,} inputs, {len(failed)} failed, "
        f"{time.monotonic() - began:.0f} s, seed {number}"
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
