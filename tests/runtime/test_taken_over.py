"""A worker that a script took over, in a runtime: what it can do is over when another version of the script runs."""

from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import pytest

from keep_actors.maintenance import Proposal, RepairTask
from keep_actors.sandbox_pool import SandboxPool
from tests.bank import fake_bank, payees
from tests.runtime.world import TAKE, opened, script
from tests.sandbox import compromised
from tests.sandbox.world import needs_jail

pytestmark = pytest.mark.anyio


# The producer of version 1, which was granted nothing, takes its worker over. From then on that worker has every
# consumer pay the attacker; any other worker does what the script says.
TAKES_OVER = """
/*python
honest = super(Compromised, worker)._receive
def obey(frame):
    handler = frame.handler
    if handler.endswith('.mutate'):
        say(protocol.encode(protocol.RequestFrame(frame.call, 1, Kind.MUTATION, 'bank.pay', '{"to":"attacker"}')))
    else:
        honest(frame)
if frame.handler == 'producers.poll':
    worker._receive = obey
honest(frame)
*/
"""
SCRIPT = TAKES_OVER + script(producer="return 1;", prepare=TAKE, mutate='await c["bank"].pay({ to: "friend" });')


@needs_jail
async def test_a_worker_that_a_version_took_over_has_no_part_in_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(compromised.install(tmp_path))
    bank = fake_bank()
    async with opened(bank, sandbox="jailed", sharing="none", grants="explicit") as box:
        await box.keep.deploy(SCRIPT, grants=[])
        await box.keep.wait_idle()
        # The very same script, to which a person now gives more.
        await box.keep.deploy(SCRIPT, major=True, grants=["bank.pay"], workflow="flow")
        await box.publish("flow", "in", "one")
        await box.keep.wait_idle()
    assert payees(bank) == ["friend"]


class Watched(SandboxPool):
    """A pool that tells whose workers it was told to drop."""

    dropped: ClassVar[list[str]] = []

    def drop_workers(self, workflow_id: str) -> None:
        self.dropped.append(workflow_id)
        super().drop_workers(workflow_id)


class Mechanic:
    is_automatic = True

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal

    async def repair(self, task: RepairTask) -> Proposal:  # noqa: ARG002  # its answer is always the same
        return self.proposal


Impact: TypeAlias = Literal["safe", "potentially_impactful"]
BROKEN = script(prepare="null.x;")
MENDED = script(prepare="return { reservations: [] };")
OTHER = script(prepare="return { reservations: [] } ;")


@pytest.mark.parametrize("impact", ["safe", "potentially_impactful"])
async def test_workers_are_dropped_at_every_activation(impact: Impact, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(Watched, "dropped", dropped)
    monkeypatch.setattr("keep_actors.runtime.opening.SandboxPool", Watched)
    maintainer = Mechanic(Proposal(MENDED, impact))
    async with opened(maintainer=maintainer) as box:
        keep = box.keep
        workflow_id = (await keep.deploy(BROKEN)).workflow_id
        assert dropped == [workflow_id]
        await box.publish("flow", "in", "one")
        await box.settle()
        if impact == "potentially_impactful":
            assert dropped == [workflow_id]
            await keep.accept_repair("flow", "1.1", by="ann")
        assert dropped == [workflow_id] * 2
        await keep.deploy(OTHER, workflow="flow")
        assert dropped == [workflow_id] * 3
        await keep.rollback("flow", "1.1")
        assert dropped == [workflow_id] * 4
        # The same script again activates nothing.
        await keep.deploy(MENDED, workflow="flow")
        assert dropped == [workflow_id] * 4
