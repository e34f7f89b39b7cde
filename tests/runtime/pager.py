"""A sink that obeys a plan, and ways to let a runtime with notices come to rest."""

from collections import deque
from collections.abc import Awaitable, Callable

import anyio

from keep_actors.notices import Notice
from keep_actors.notices.actor import LOOK_EVERY_MS
from keep_actors.notices.sink import TIMEOUT_MS
from keep_actors.policy import Backoff
from keep_storage.model import Says
from tests.runtime.world import SECOND, TimedBox

Step = Callable[[], Awaitable[None]]

QUICK = Backoff(first_ms=SECOND, cap_ms=8 * SECOND, attempts_max=3, jitter=0)


async def hangs() -> None:
    await anyio.sleep_forever()


def fails(error: BaseException) -> Step:
    async def step() -> None:
        raise error

    return step


class Pager:
    """Takes every notice, unless it was told what happens at the next ones, or at all that follow (`always`)."""

    def __init__(
        self, *plan: Step, name: str = "pager", always: Step | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        self.name = name
        self.timeout_ms = timeout_ms
        self.backoff = QUICK
        self.plan = deque(plan)
        self.always = always
        self.asked: list[Notice] = []
        """Every attempt."""
        self.got: list[Notice] = []

    async def deliver(self, notice: Notice) -> None:
        self.asked.append(notice)
        step = self.plan.popleft() if self.plan else self.always
        if step is not None:
            await step()
        self.got.append(notice)

    def said(self, says: Says) -> list[Notice]:
        return [each for each in self.got if each.says is says]


async def calm(box: TimedBox) -> None:
    """Let notices be compared and delivered, for a database in memory."""
    await box.settle()
    await box.until_idle()
    box.time.advance(LOOK_EVERY_MS)
    await box.until_idle()


async def until(box: TimedBox, condition: Callable[[], bool]) -> None:
    """The same for any database: while time passes in small steps, until it is so."""
    with anyio.fail_after(30):
        while not condition():
            box.time.advance(LOOK_EVERY_MS)
            await anyio.wait_all_tasks_blocked()
            await box.keep.workflows()
