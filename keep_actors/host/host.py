"""The services that all workflow actors share. Made once, by `open`.

`Services` is enough to run a handler; it knows no database. `Host` adds the storage of a whole runtime.
"""

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec

from keep_actors.connectors import Catalog
from keep_actors.host.call_times import CallTimes
from keep_actors.host.fault_points import Faults, no_faults
from keep_actors.host.reading_actor import ReadingRef
from keep_actors.host.run_slots import RunSlots
from keep_actors.host.storage_actor import StorageRef
from keep_actors.host.storage_retry import retry_while_unavailable
from keep_actors.kernel import Time
from keep_actors.policy import Policy
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.script import Script
from keep_actors.telemetry import NO_TELEMETRY, Telemetry
from keep_sandbox import Capabilities
from keep_storage import reads
from keep_storage.ids import Ids
from keep_storage.transaction import Queries

T = TypeVar("T")

_SCRIPTS_BYTES_KEPT: Final = 32 * 1024 * 1024
"""Sources of the scripts that ran last: some thousands of usual ones. What is read of them is a few times that."""


class Services:
    """Time, randomness, workers, connectors and rules: everything that running a handler takes."""

    def __init__(
        self,
        *,
        time: Time,
        rng: random.Random,
        pool: SandboxPool,
        catalog: Catalog,
        run_slots: RunSlots,
        policy: Policy,
        policies: Mapping[str, Policy],
        telemetry: Telemetry = NO_TELEMETRY,
        faults: Faults = no_faults,
    ) -> None:
        self.time = time
        self.started_at = time.now()
        self.rng = rng
        self.ids = Ids(time.now, rng)
        self.pool = pool
        self.catalog = catalog
        self.run_slots = run_slots
        self.telemetry = telemetry
        self.call_times = CallTimes(time)
        self.reach = faults
        """Called at every fault point, with its name and whose work it is."""
        # Everything is offered everywhere: what is not allowed somewhere is refused with words, not a TypeError.
        self._capabilities = {
            is_terminal: Capabilities(
                peek=True,
                get_by_ids=True,
                publish=True,
                with_item=True,
                connectors=catalog.capabilities(),
                mutation_is_terminal=is_terminal,
            )
            for is_terminal in (True, False)
        }
        """By whether a mutation ends the script."""
        self._policy = policy
        self._policies = policies

    def policy_of(self, workflow_name: str) -> Policy:
        return self._policies.get(workflow_name, self._policy)

    def capabilities(self, script: Script, *, mutation_is_terminal: bool) -> Capabilities:
        """The members of `ctx`. A method that existed when the script was deployed and is missing now is still offered:
        a call of it waits for the connector, and does not fail over a name."""
        offered = self._capabilities[mutation_is_terminal]
        missing = {name: kind for name, kind in script.methods.items() if self.catalog.get(name) is None}
        if not missing:
            return offered
        connectors = {connector: {**methods} for connector, methods in offered.connectors.items()}
        for name, kind in missing.items():
            connector, _, method = name.partition(".")
            connectors.setdefault(connector, {})[method] = kind
        return msgspec.structs.replace(offered, connectors=connectors)

    def has_own_policy(self, workflow_name: str) -> bool:
        """Return True if `policies` has settings for a workflow of this name."""
        return workflow_name in self._policies

    @property
    def policies(self) -> tuple[Policy, ...]:
        """The default, and those of single workflows."""
        return (self._policy, *self._policies.values())


class Host(Services):
    """The services of one runtime."""

    def __init__(
        self,
        *,
        time: Time,
        rng: random.Random,
        storage: StorageRef,
        reading: ReadingRef,
        pool: SandboxPool,
        catalog: Catalog,
        run_slots: RunSlots,
        policy: Policy,
        policies: Mapping[str, Policy],
        automatic_repairs: bool = False,
        telemetry: Telemetry = NO_TELEMETRY,
        faults: Faults = no_faults,
    ) -> None:
        super().__init__(
            time=time,
            rng=rng,
            pool=pool,
            catalog=catalog,
            run_slots=run_slots,
            policy=policy,
            policies=policies,
            telemetry=telemetry,
            faults=faults,
        )
        self.storage = storage
        self.reading = reading
        self.is_closing = False
        """Set at shutdown: active runs finish, and no other begins."""
        self.is_closed = False
        """Set when they have finished."""
        self._automatic_repairs = automatic_repairs
        self._scripts: OrderedDict[str, Script] = OrderedDict()
        self._scripts_bytes = 0

    async def read(self, function: Callable[[Queries], T]) -> T:
        """Read, and retry while the disk cannot be read. Use `reading` to get the error instead."""
        return await retry_while_unavailable(lambda: self.reading.read(function), self.time)

    def repairs_max(self, workflow_name: str) -> int:
        """How often a handler of this workflow is repaired by itself; 0: a person does it."""
        return self.policy_of(workflow_name).repairs_max if self._automatic_repairs else 0

    async def script(self, version_id: str) -> Script:
        """A version's source and declaration. The last ones used are kept: a version never changes."""
        if (known := self._scripts.get(version_id)) is not None:
            self._scripts.move_to_end(version_id)
            return known
        version = await self.read(lambda q: reads.version(q, version_id))
        assert version is not None, "a version is never deleted"
        script = Script.of(version)
        if version_id not in self._scripts:  # another workflow's actor may have read it meanwhile
            self._scripts[version_id] = script
            self._scripts_bytes += len(script.source)
        while self._scripts_bytes > _SCRIPTS_BYTES_KEPT:
            self._scripts_bytes -= len(self._scripts.popitem(last=False)[1].source)
        return script
