"""`assemble`: the one place where the parts of a runtime are put together.

The product, the testing kit, the simulator and the crash tests call it, and differ only in what they hand in.
"""

import random
from collections.abc import Mapping

from keep_actors.connectors import Catalog
from keep_actors.host.fault_points import Faults, no_faults
from keep_actors.host.host import Host
from keep_actors.host.reading_actor import ReadingActor
from keep_actors.host.run_slots import RunSlots
from keep_actors.host.storage_actor import CommitStore, StorageActor
from keep_actors.kernel import RestartPolicy, Thread, Time
from keep_actors.kernel.signal import Signal
from keep_actors.maintenance import Maintainer
from keep_actors.notices import Sink
from keep_actors.permissions import Accepted
from keep_actors.policy import Policy
from keep_actors.runtime.runtime import CoreActors, PaceOf, Runtime, Serves
from keep_actors.sandbox_pool import SandboxPool
from keep_actors.telemetry import NO_TELEMETRY, Telemetry
from keep_storage.transaction import Reader

_UNBOUNDED = 1 << 40
"""Inside the runtime a send is never refused: the number of workflows bounds the messages that can wait."""


def assemble(
    store: CommitStore,
    reader: Reader,
    pool: SandboxPool,
    catalog: Catalog,
    *,
    time: Time,
    rng: random.Random,
    thread: Thread | None = None,
    reading_thread: Thread | None = None,
    policy: Policy | None = None,
    policies: Mapping[str, Policy] | None = None,
    grants: Accepted = "explicit",
    maintainer: Maintainer | None = None,
    sinks: tuple[Sink, ...] = (),
    server: Serves | None = None,
    restart: RestartPolicy | None = None,
    runs_max: int = 256,
    telemetry: Telemetry = NO_TELEMETRY,
    faults: Faults = no_faults,
    pace: PaceOf | None = None,
) -> Runtime:
    """Make a runtime of these parts. It starts with `Runtime.running`; the caller closes what it has handed in.

    Without `thread` or `reading_thread`, writes or reads have a worker thread of their own. `pace` is awaited with a
    workflow's id before its actor takes a message.
    """
    committed = Signal()
    storage = StorageActor(
        store,
        mailbox_capacity=_UNBOUNDED,
        thread=thread,
        on_commit=committed.fire,
        telemetry=telemetry,
        faults=faults,
    )
    reading = ReadingActor(reader, mailbox_capacity=_UNBOUNDED, thread=reading_thread)
    host = Host(
        time=time,
        rng=rng,
        storage=storage.ref,
        reading=reading.ref,
        pool=pool,
        catalog=catalog,
        run_slots=RunSlots(runs_max),
        policy=policy or Policy(),
        policies=policies or {},
        automatic_repairs=maintainer is not None and maintainer.is_automatic,
        telemetry=telemetry,
        faults=faults,
    )
    return Runtime(
        host,
        CoreActors(storage, reading, time),
        committed,
        restart=restart or RestartPolicy(),
        grants=grants,
        maintainer=maintainer,
        sinks=sinks,
        server=server,
        pace=pace,
    )
