"""Known vulnerabilities in what users install: the list to ask about, and the verdict on what pip-audit answered.

`python -m tests.supply.audit needed` prints the list, `python -m tests.supply.audit judge REPORT` ends with 1 if the
report (`pip-audit --format json`) has a vulnerability. pip-audit itself ends with 0, and says that none is known, where
every package was left out because the service did not know it: nothing was asked then, and that is said here.
"""

import sys
from importlib.metadata import requires, version
from pathlib import Path
from typing import Final

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.supply.bom import NOT_FOR_USERS, project

FAILED: Final = 1


class Vulnerability(msgspec.Struct):
    """One that is known."""

    id: str
    fix_versions: list[str] = []


class Audited(msgspec.Struct):
    """A package, and all that is known about it, or why nobody could say."""

    name: str
    version: str = ""
    vulns: list[Vulnerability] = []
    skip_reason: str = ""


class Report(msgspec.Struct):
    """As pip-audit writes it."""

    dependencies: list[Audited]


def needed() -> list[str]:
    """Every package that a user's installation has, with all extras for users, at the version that is here."""
    described = project()
    extras = {extra for extra in described["optional-dependencies"] if extra not in NOT_FOR_USERS}
    found, waiting = dict[str, str](), [(described["name"], frozenset(extras))]
    seen = set(waiting)
    while waiting:
        name, wanted = waiting.pop()
        for requirement in map(Requirement, requires(name) or []):
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in ["", *wanted]):
                continue
            next_name = canonicalize_name(requirement.name)
            found[next_name] = version(next_name)
            step = (next_name, frozenset(requirement.extras))
            if step not in seen:
                seen.add(step)
                waiting.append(step)
    return [f"{name}=={at}" for name, at in sorted(found.items())]


def judge(report: Path) -> tuple[int, str]:
    """The exit code, and a line that says what it means."""
    try:
        audited = msgspec.json.decode(report.read_bytes(), type=Report).dependencies
    except (FileNotFoundError, msgspec.DecodeError):
        return 0, "Audit NOT DONE: no service that knows of vulnerabilities could be reached."
    harmful = [each for each in audited if each.vulns]
    if harmful:
        lines = [
            f"  {each.name} {each.version}: {known.id}, {_fixed(known)}" for each in harmful for known in each.vulns
        ]
        return FAILED, "\n".join(["Audit FAILED:", *lines])
    left_out = [each.name for each in audited if each.skip_reason]
    if left_out or not audited:
        about = f"{len(left_out)} of {len(audited)} packages"
        return 0, f"Audit NOT DONE for {about}, which the service does not know: {', '.join(left_out)}"
    return 0, f"Audit clean: {len(audited)} packages, no known vulnerability."


def _fixed(known: Vulnerability) -> str:
    return f"fixed in {', '.join(known.fix_versions)}" if known.fix_versions else "not fixed yet"


def main(arguments: list[str]) -> int:
    match arguments:
        case ["needed"]:
            sys.stdout.write("".join(f"{each}\n" for each in needed()))
            return 0
        case ["judge", report]:
            code, words = judge(Path(report))
            sys.stdout.write(f"{words}\n")
            return code
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
