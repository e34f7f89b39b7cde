"""Everything that a deployment would find wrong with scripts, without one, and what looks wrong beside."""

from collections.abc import Iterable, Sequence

import msgspec

from keep_actors.authoring import admission
from keep_actors.connectors import Catalog, Connector
from keep_actors.kernel import WallTime
from keep_actors.policy import Policy
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.sandbox_pool.limits import limits_for
from keep_actors.sandbox_pool.pool import PoolMode
from keep_sandbox.declaration import Problem


class Checked(msgspec.Struct, frozen=True):
    """What was found in one script."""

    name: str
    """That of its workflow, if it has one."""
    uses: list[str]
    """The connector methods that it names."""
    problems: list[Problem]
    """The first of them, in the order of the script."""
    count: int
    warnings: list[Problem] = []
    """What looks wrong and may be right: no deployment is refused for it."""


async def check_scripts(
    sources: Sequence[str], connectors: Iterable[Connector] | None = None, sandbox: PoolMode = "jailed"
) -> list[Checked]:
    """Check each. Without `connectors` their methods are not checked, and are judged by their verbs."""
    kinds = Catalog(connectors).kinds() if connectors is not None else None
    found: list[Checked] = []
    async with SandboxPool.open(mode=sandbox, limits=limits_for(sandbox)) as pool:
        for source in sources:
            script = await admission.inspected(pool, source, kinds, "UTC", lambda _: Policy(), WallTime().now())
            uses = [use.name for use in script.inspection.uses]
            problems = sorted(script.problems, key=_place)
            found.append(Checked(script.name, uses, problems, script.count, script.inspection.warnings))
    return found


def _place(problem: Problem) -> tuple[int, int]:
    return (problem.place.line, problem.place.column) if problem.place is not None else (0, 0)
