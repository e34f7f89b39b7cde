"""`python -m tests.simulation.until_caught FIRST SEEDS`: the first seed that breaks a promise, and which; or -1."""

import logging
import sys

from tests.simulation.story import tell


def main(first: int, seeds: int) -> int:
    """Say which. Anything that the product lets through to here counts as well: nobody would have caught it."""
    logging.disable(logging.CRITICAL)
    for seed in range(first, first + seeds):
        try:
            violation = tell(seed).violation
        except BaseException as error:  # of a product with a bug in it, whatever that is
            violation = f"{type(error).__name__}: {error}"
        if violation:
            sys.stdout.write(f"{seed} {' '.join(violation.split())}\n")
            return 1
    sys.stdout.write("-1\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
