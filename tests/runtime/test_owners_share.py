"""The owner of a workflow decides whose calls it may meet in a process of the sandbox."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from keep_actors.sandbox_pool import Call, PoolPolicy, SandboxPool
from keep_actors.sandbox_pool.policy import Sharing
from keep_sandbox import Invocation, Limits
from tests.runtime.world import TAKE, opened, script

pytestmark = pytest.mark.anyio


class Watched(SandboxPool):
    """A pool that tells for whom it was called, and with which policy it was opened."""

    seen: ClassVar[list[tuple[str, Sharing]]] = []

    @asynccontextmanager
    async def invoke(
        self, workflow_id: str, invocation: Invocation, limits: Limits | None = None, *, owner: str = ""
    ) -> AsyncIterator[Call]:
        self.seen.append((owner, self._policy.sharing))
        async with super().invoke(workflow_id, invocation, limits, owner=owner) as call:
            yield call


@pytest.mark.parametrize(
    ("sharing", "policy", "expected"),
    [(None, None, "owner"), ("all", PoolPolicy(), "all"), (None, PoolPolicy(sharing="none"), "none")],
)
async def test_a_call_is_made_for_the_owner_of_its_workflow(
    sharing: Sharing | None, policy: PoolPolicy | None, expected: Sharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, Sharing]] = []
    monkeypatch.setattr(Watched, "seen", seen)
    monkeypatch.setattr("keep_actors.runtime.opening.SandboxPool", Watched)
    async with opened(sharing=sharing, pool_policy=policy) as box:
        await box.keep.deploy(script(prepare=TAKE), owner="ann")
        await box.publish("flow", "in", "one")
        await box.settle()
    assert set(seen) == {("ann", expected)}
