"""Inspect a script: its declaration and its problems, without calling a handler.

The script's top level does run, and a parser written in C reads hostile text: scripts that are not trusted are
inspected in a worker, through the pool. The function `inspect` here is for trusted ones.
"""

from collections.abc import Mapping

import msgspec

from keep_sandbox.checks import check, used_methods, warnings
from keep_sandbox.declaration import PROBLEMS_SHOWN_MAX, Code, Inspection, Path, Problem
from keep_sandbox.declaration_checks import RawDeclaration, declared, is_readable, is_sound
from keep_sandbox.engine import shared_engine
from keep_sandbox.guest import Guest, LogSink
from keep_sandbox.handlers import places_of_declaration
from keep_sandbox.invocation import MethodKind
from keep_sandbox.limits import TRUSTED_LIMITS, Limits
from keep_sandbox.loading import load_problem
from keep_sandbox.outcomes import InvocationEnd, Kind, Place, SizeLimit, Value
from keep_sandbox.syntax import Node, Tree

_USES_MAX = 1_000
_WORDS_MAX = 600
_PROBLEMS_MAX = 1_000_000
"""More than a script of the maximum size can have."""


class _Ending:
    """A sink that keeps only the end."""

    def __init__(self) -> None:
        self.ending: InvocationEnd | None = None

    def request(self, request_id: int, kind: Kind, name: str, params: str) -> None:
        """Ignored: no requests were offered."""

    def log(self, line: str) -> None:
        """Ignored."""

    def end(self, ending: InvocationEnd) -> None:
        """Keep the declaration, or the reason why there is none."""
        self.ending = ending


def inspect(
    source: str, methods: Mapping[str, MethodKind] | None = None, limits: Limits = TRUSTED_LIMITS
) -> Inspection:
    """Inspect a trusted script in this process. `methods` says which connector methods are mutations."""
    guest = Guest(shared_engine(), limits)
    ending = _Ending()
    inspect_with(guest, source, methods, limits, ending)
    guest.close()
    assert isinstance(ending.ending, Value), "an inspection always has an answer"
    found = believed(ending.ending.value)
    assert found is not None, "an inspection made in this process is plausible"
    return found


def inspect_with(
    guest: Guest, source: str, methods: Mapping[str, MethodKind] | None, limits: Limits, sink: LogSink
) -> None:
    """Inspect with this guest, and send the inspection to the sink as a value."""
    loaded = _Ending()
    guest.declare(source, loaded)
    assert loaded.ending is not None, "a script that is offered nothing waits for nothing"
    inspection = _inspection(source, loaded.ending, methods, limits)
    sink.end(Value(value=msgspec.json.encode(inspection).decode()))


def believed(text: str) -> Inspection | None:
    """Decode a worker's inspection; None if it is not plausible, because the script may have taken the worker over.

    A declaration without problems is checked again; one with problems is left out unless it is readable. The texts of
    problems are shown to people, so they are bounded.
    """
    try:
        inspection = msgspec.json.decode(text, type=Inspection)
    except (msgspec.MsgspecError, RecursionError):
        return None
    told = [*inspection.problems, *inspection.warnings]
    is_bounded = (
        max(len(inspection.problems), len(inspection.warnings)) <= PROBLEMS_SHOWN_MAX
        and max(len(inspection.uses), len(inspection.places)) <= _USES_MAX
        and all(len(each.message) <= _WORDS_MAX and len(each.hint) <= _WORDS_MAX for each in told)
        and len(inspection.problems) <= inspection.problem_count <= _PROBLEMS_MAX
    )
    declares = inspection.declaration
    if not is_bounded or (not inspection.problems and (declares is None or not is_sound(declares))):
        return None
    is_kept = declares is None or is_readable(declares)
    return inspection if is_kept else msgspec.structs.replace(inspection, declaration=None)


def _inspection(
    source: str, ending: InvocationEnd, methods: Mapping[str, MethodKind] | None, limits: Limits
) -> Inspection:
    if isinstance(ending, SizeLimit) and ending.what == "script":
        # Not parsed: the cost of everything below depends on the size.
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
        warnings=[_bounded(warning, limits) for warning in warnings(tree)[:PROBLEMS_SHOWN_MAX]],
        uses=used_methods(tree)[:_USES_MAX],
        places=_places(parts) if declaration is not None else {},
    )


def _placed(problem: Problem, path: Path, parts: Mapping[Path, Node]) -> Problem:
    """Add the place of the part that the problem is about, or of the nearest part around it."""
    while path and path not in parts:
        path = path[:-1]
    place = parts[path].place if path in parts else Place(1, 1)
    return msgspec.structs.replace(problem, place=place)


def _places(parts: Mapping[Path, Node]) -> dict[str, Place]:
    wanted = (path for path in parts if len(path) == 2 or (len(path) == 3 and path[2] == "schedule"))
    return {".".join(path): parts[path].place for path, _ in zip(wanted, range(_USES_MAX), strict=False)}


def _bounded(problem: Problem, limits: Limits) -> Problem:
    message = problem.message[: min(limits.error_chars, _WORDS_MAX)]
    return msgspec.structs.replace(problem, message=message, hint=problem.hint[:_WORDS_MAX])
