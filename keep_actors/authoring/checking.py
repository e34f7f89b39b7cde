"""Check scripts as a deployment would, without deploying them."""

from collections.abc import Iterable, Sequence

import msgspec

from keep_actors.authoring import admission
from keep_actors.connectors import Catalog, Connector
from keep_actors.kernel import WallTime
from keep_actors.policy import Policy
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.sandbox_pool.limits import RUN_LIMITS
from keep_actors.sandbox_pool.pool import PoolMode
from keep_sandbox.declaration import Problem


class Checked(msgspec.Struct, frozen=True):
    """The result for one script."""

    name: str
    """The name of its workflow; empty if it has none."""
    uses: list[str]
    """The connector methods that it names."""
    problems: list[Problem]
    """The first of them, in the order of the script."""
    count: int
    """The number of all problems."""
    warnings: list[Problem] = []
    """Code that is probably wrong, but may be right; no reason to refuse a deployment."""


async def check_scripts(
    sources: Sequence[str], connectors: Iterable[Connector] | None = None, sandbox: PoolMode = "jailed"
) -> list[Checked]:
    """Check each script. Without `connectors`, methods are not checked to exist, and are judged by their verbs."""
    kinds = Catalog(connectors).kinds() if connectors is not None else None
    found: list[Checked] = []
    async with SandboxPool.open(mode=sandbox, limits=RUN_LIMITS) as pool:
        for source in sources:
            script = await admission.inspected(pool, source, kinds, "UTC", lambda _: Policy(), WallTime().now())
            uses = [use.name for use in script.inspection.uses]
            problems = sorted(script.problems, key=_place)
            found.append(Checked(script.name, uses, problems, script.count, script.inspection.warnings))
    return found


def _place(problem: Problem) -> tuple[int, int]:
    return (problem.place.line, problem.place.column) if problem.place is not None else (0, 0)
