"""`inspect(source)`: what a script declares and what is wrong with it, without calling a handler.

The script's own top level does run, and a parser written in C reads hostile text: for a script that is not trusted
this happens in a worker, through the pool. The function here is for trusted ones.
"""

from collections.abc import Mapping

import msgspec

from keep_sandbox.checks import check, used_methods
from keep_sandbox.declaration import (
    PROBLEMS_SHOWN_MAX,
    Code,
    Inspection,
    Path,
    Problem,
    RawDeclaration,
    declared,
)
from keep_sandbox.engine import Guest, Sink
from keep_sandbox.handlers import places_of_declaration
from keep_sandbox.invocation import MethodKind
from keep_sandbox.limits import TRUSTED_LIMITS, Limits
from keep_sandbox.loading import load_problem
from keep_sandbox.outcomes import Ending, Kind, Place, SizeLimit, Value
from keep_sandbox.syntax import Node, Tree

_USES_MAX = 1_000


class _Ending:
    """A sink that waits for the end."""

    def __init__(self) -> None:
        self.ending: Ending | None = None

    def request(self, request_id: int, kind: Kind, name: str, params: str) -> None:
        """Nothing was offered."""

    def log(self, line: str) -> None:
        """What a script says while it is loaded is not of interest."""

    def end(self, ending: Ending) -> None:
        """The declaration, or why there is none."""
        self.ending = ending


def inspect(
    source: str, methods: Mapping[str, MethodKind] | None = None, limits: Limits = TRUSTED_LIMITS
) -> Inspection:
    """Inspect a trusted script in this process. `methods` says which connector methods mutate."""
    guest = Guest(limits)
    ending = _Ending()
    inspect_with(guest, source, methods, limits, ending)
    guest.close()
    assert isinstance(ending.ending, Value), "an inspection always has an answer"
    return msgspec.json.decode(ending.ending.value, type=Inspection)


def inspect_with(
    guest: Guest, source: str, methods: Mapping[str, MethodKind] | None, limits: Limits, sink: Sink
) -> None:
    """Inspect with this guest, and end with the inspection as a value."""
    loaded = _Ending()
    guest.declare(source, loaded)
    assert loaded.ending is not None, "a script that is offered nothing waits for nothing"
    inspection = _inspection(source, loaded.ending, methods, limits)
    sink.end(Value(value=msgspec.json.encode(inspection).decode()))


def _inspection(source: str, ending: Ending, methods: Mapping[str, MethodKind] | None, limits: Limits) -> Inspection:
    if isinstance(ending, SizeLimit) and ending.what == "script":
        # Not even parsed: the cost of everything below is in proportion to the size that is allowed.
        hint, top = "split it into several workflows", Place(1, 1)
        problem = Problem(code=Code.TOO_LARGE, message=ending.message, hint=hint, place=top)
        return Inspection(declaration=None, problems=[problem], problem_count=1)
    tree = Tree(source)
    declaration = None
    parts = places_of_declaration(tree)
    problems = check(tree, declaration, methods) if not isinstance(ending, Value) else []
    if isinstance(ending, Value):
        declaration, misfits = declared(msgspec.json.decode(ending.value, type=RawDeclaration))
        problems = [_placed(problem, path, parts) for path, problem in misfits]
        problems += check(tree, declaration, methods)
    else:
        problems += load_problem(ending, tree, parts, problems)
    problems.sort(key=lambda problem: (problem.place.line, problem.place.column) if problem.place else (0, 0))
    shown = [_bounded(problem, limits) for problem in problems[:PROBLEMS_SHOWN_MAX]]
    return Inspection(
        declaration=declaration,
        problems=shown,
        problem_count=len(problems),
        uses=used_methods(tree)[:_USES_MAX],
        places=_places(parts) if declaration is not None else {},
    )


def _placed(problem: Problem, path: Path, parts: Mapping[Path, Node]) -> Problem:
    """With the place of the part it speaks of, or of what is around that."""
    while path and path not in parts:
        path = path[:-1]
    place = parts[path].place if path in parts else Place(1, 1)
    return msgspec.structs.replace(problem, place=place)


def _places(parts: Mapping[Path, Node]) -> dict[str, Place]:
    wanted = (path for path in parts if len(path) == 2 or (len(path) == 3 and path[2] == "schedule"))
    return {".".join(path): parts[path].place for path, _ in zip(wanted, range(_USES_MAX), strict=False)}


def _bounded(problem: Problem, limits: Limits) -> Problem:
    message = problem.message[: min(limits.error_chars, 600)]
    return msgspec.structs.replace(problem, message=message, hint=problem.hint[:600])
