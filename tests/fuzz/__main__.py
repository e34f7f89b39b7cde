"""`python -m tests.fuzz NAME --minutes N`: fuzz one target, or with `all` each of them, for so long.

Ends with 1 at the first input that does harm, which is printed as small as it could be made. Put it into
`tests/fuzz/corpus/NAME`: from then on every run of the tests tries it.
"""

import argparse
import logging
import sys
import traceback

from tests.fuzz.targets import targets


def main() -> int:
    known = targets()
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument(
        "name", choices=[*known, "all"], help="; ".join(f"{each.name}: {each.about}" for each in known.values())
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target (1)")
    asked = parser.parse_args()
    logging.disable()  # what a runtime says of every run that fails
    failed = False
    for target in known.values() if asked.name == "all" else [known[asked.name]]:
        for file in target.corpus:
            target.check(target.read(file.read_bytes()))
        try:
            tried = target.try_for(asked.minutes * 60)
        except Exception:
            traceback.print_exc()
            failed = True
            continue
        sys.stdout.write(f"{target.name}: {tried} inputs, nothing found\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
