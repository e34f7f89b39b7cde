"""The ground that the rows of a mutation share: the running service, ways to it that can be disturbed, and examples."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from dataclasses import dataclass
from itertools import count
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from keep_actors.connectors import Method, Params
from keep_actors.testing.certification.faults import Fault
from keep_actors.testing.certification.proxy import Proxy
from keep_actors.testing.certification.pulse import Pulse
from keep_actors.testing.certification.subject import Certification, RunningService
from keep_storage import Ids, wall_clock

_LOOK_S = 0.02
_STOOD_STILL = (
    "the event loop stood still: a call must not block it. Use a client that is async, or a worker thread "
    "(`anyio.to_thread.run_sync`), which ends when its call is cancelled"
)
QUIET_S = 0.15
"""After this time something that should not come is taken not to come. It is on this machine, and nothing holds it."""


class RowBroken(Exception):
    """The row failed: the connector said something that is not so, or there are too many effects."""


class RowDoesNotApply(Exception):
    """The row cannot be tried with this connector. The message says why."""


class RowMoot(Exception):
    """The moment of the row did not come in time: it can be tried again with more time."""


class Route:
    """Ways to the service, each through a proxy."""

    def __init__(self, proxies: Mapping[str, Proxy], seen: RunningService) -> None:
        self._proxies = tuple(proxies.values())
        self.seen = seen
        """The service as a connector shall see it."""
        self.stood_still = False
        """The event loop stood still while this way was open, and all its connections were ended for that."""

    @property
    def moments(self) -> int:
        """How often the moment of a fault has come."""
        return sum(proxy.moments for proxy in self._proxies)

    def inject(self, fault: Fault) -> None:
        """Have this fault on every way."""
        for proxy in self._proxies:
            proxy.inject(fault)

    def clear(self) -> None:
        """Have no fault."""
        for proxy in self._proxies:
            proxy.clear()

    def release(self) -> None:
        """Let held bytes go."""
        for proxy in self._proxies:
            proxy.release()

    async def refuse(self) -> None:
        """Refuse new connections, and end the old ones."""
        for proxy in self._proxies:
            await proxy.refuse()
            proxy.drop()

    def give_up(self) -> None:
        """End everything, from any thread: the event loop stands still."""
        self.stood_still = True
        for proxy in self._proxies:
            proxy.abandon()

    async def accept(self) -> None:
        """Accept connections again."""
        for proxy in self._proxies:
            await proxy.accept()

    async def repeat(self, pattern: bytes) -> bool:
        """Deliver the last requests with this pattern again."""
        return any([await proxy.repeat(pattern) for proxy in self._proxies])

    async def reached(self, most_s: float) -> bool:
        """Wait for the moment on any way. False: it did not come in time."""
        with anyio.move_on_after(most_s):
            async with anyio.create_task_group() as tasks:

                async def wait(proxy: Proxy) -> None:
                    await proxy.reached()
                    tasks.cancel_scope.cancel()

                for proxy in self._proxies:
                    tasks.start_soon(wait, proxy)
        return any(proxy.has_moment for proxy in self._proxies)


@dataclass(frozen=True, slots=True)
class ExampleCall:
    """One call that is to be made: an example with a number of its own."""

    example: Mapping[str, Any]
    params: Params


class Ground:
    """The service and one mutation of the connector."""

    def __init__(self, certification: Certification, service: RunningService, method: Method, pulse: Pulse) -> None:
        self.certification = certification
        self.service = service
        self.pulse = pulse
        self.method = method
        """Not bound to a connector that is open: for what is declared."""
        self.decisive = certification.decisive.get(method.name, b"")
        self.times = 1
        """So many times the usual time is given to everything."""
        self._numbers: Iterator[int] = count(1)
        self._ids = Ids(wall_clock)

    def with_time(self, times: int) -> "Ground":
        """The same, with so many times the time for a call."""
        patient = copy(self)
        patient.times = times
        return patient

    @property
    def timeout_ms(self) -> int:
        """The time of a call that is disturbed."""
        return self.times * self.certification.timeout_ms

    @property
    def patience_ms(self) -> int:
        """The time in which the connector's own time-outs end a call."""
        return self.times * self.certification.patience_ms

    def wanted(self) -> ExampleCall:
        """A call that was never made."""
        example = self.certification.example(self.method.name, next(self._numbers))
        return ExampleCall(example, self.method.decode_params(msgspec.json.encode(example).decode()))

    def new_key(self) -> str:
        """An idempotency key, as the runtime makes them."""
        return self._ids.new("mut")

    @staticmethod
    def next_key(key: str) -> str:
        """The key that looks most like this one: keys of one millisecond begin alike."""
        return key[:-1] + ("1" if key.endswith("0") else "0")

    def need_network(self) -> None:
        """Raise `RowDoesNotApply` for a service on this machine."""
        if not self.service.addresses:
            raise RowDoesNotApply("the service has no network")

    @asynccontextmanager
    async def way(self) -> AsyncIterator[Route]:
        """A way to the service of its own. Raises `RowMoot` at its end if the event loop stood still meanwhile."""
        async with AsyncExitStack() as stack:
            proxies = {
                name: await stack.enter_async_context(Proxy.to(address))
                for name, address in self.service.addresses.items()
            }
            addresses = {name: proxy.address for name, proxy in proxies.items()}
            way = Route(proxies, replace(self.service, addresses=addresses))
            stack.enter_context(self.pulse.curing(way.give_up))
            yield way
        if way.stood_still:
            raise RowMoot(_STOOD_STILL)

    async def effects(self, wanted: ExampleCall) -> int:
        """The effects of a call, now."""
        return await self.certification.effects(self.service, self.method.name, wanted.example)

    async def effects_come(self, wanted: ExampleCall, most_s: float = 2.0) -> int:
        """The effects of a call, when there is one at last, or the time is over."""
        until = anyio.current_time() + most_s
        while True:
            effects = await self.effects(wanted)
            if effects or anyio.current_time() > until:
                return effects
            await anyio.sleep(_LOOK_S)

    async def effects_at_rest(self, wanted: ExampleCall) -> int:
        """The effects of a call after a quiet time, in which another one could still have come."""
        await anyio.sleep(QUIET_S)
        return await self.effects(wanted)
