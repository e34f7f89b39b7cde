"""`certify`: every row for every mutation of a connector, on a real service, and a table of what held."""

import os
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack, nullcontext
from typing import Final

import anyio

from keep_actors.connectors import Catalog, Connector
from keep_actors.kernel.foreign_code import attempt, described
from keep_actors.testing.certification.ground import Ground, RowBroken, RowDoesNotApply, RowMoot
from keep_actors.testing.certification.host_rows import HOST_ROWS
from keep_actors.testing.certification.kill_rows import KILL_ROWS
from keep_actors.testing.certification.lives import Lives
from keep_actors.testing.certification.network_rows import NETWORK_ROWS
from keep_actors.testing.certification.pulse import Pulse
from keep_actors.testing.certification.reconcile_rows import RECONCILE_ROWS
from keep_actors.testing.certification.rows import CertificationRow, RowOutcome
from keep_actors.testing.certification.subject import Certification, RunningService
from keep_actors.testing.certification.table import CertificationTable, RowResult
from keep_actors.testing.certification.trial import Trial

OnRow = Callable[[RowResult], None]

_ROWS_AT_ONCE: Final = 6
_KILLS_AT_ONCE: Final = 2
_TRIES: Final = 3

TRIAL_ROWS: Final = {**NETWORK_ROWS, **RECONCILE_ROWS, **HOST_ROWS}

assert {*TRIAL_ROWS, *KILL_ROWS} == set(CertificationRow), "every row is tried somewhere"


_WAITING: Final = frozenset({CertificationRow.OWN_TIMEOUT, CertificationRow.SLOW_RECONCILE})
"""Most of their time they wait: they take no place of another row."""


async def certify(
    certification: Certification,
    *,
    only: Collection[CertificationRow] = (),
    on_row: OnRow | None = None,
    connector_class: type[Connector] = Connector,
) -> CertificationTable:
    """Start the service, try every row of every mutation, end the service, and return what was seen.

    Makes real calls: use a service that is for tests. Rows run at once, each with a connector of its own. The rows of
    SIGKILL run in other processes, which import the subject by its name: it must be in a module, and take no arguments.
    `only` names the rows to try. `on_row` is told of each result as it comes.

    Raises what the service raises when it starts, and `ValueError` for a connector without a mutation, or for one that
    is no `connector_class`.
    """
    began, suites = anyio.current_time(), list[_Suite]()
    with attempt() as tried:
        async with Pulse.watched() as pulse, certification.service() as service:
            suites.append(_Suite(certification, service, connector_class, pulse))
            await suites[0].run(only or tuple(CertificationRow), on_row)
    if tried.error is not None:
        raise first_of(tried.error)
    [suite] = suites
    order = {name: place for place, name in enumerate(suite.methods)}
    results = sorted(suite.results, key=lambda each: (order[each.method], list(CertificationRow).index(each.row)))
    return CertificationTable(suite.connector, results, int((anyio.current_time() - began) * 1000))


class _Suite:
    """The rows in progress, and the results so far."""

    def __init__(
        self, certification: Certification, service: RunningService, connector_class: type[Connector], pulse: Pulse
    ) -> None:
        catalog = Catalog([certification.connector(service)])
        [made] = catalog.connectors
        if not isinstance(made, connector_class):
            raise ValueError(f"{certification.spec()} makes a {type(made).__name__}, no {connector_class.__name__}")
        self.connector = made.name
        self.results: list[RowResult] = []
        self._certification = certification
        self._grounds = [
            Ground(certification, service, method, pulse)
            for method in catalog.methods.values()
            if method.kind == "mutation"
        ]
        if not self._grounds:
            raise ValueError(f"{self.connector} has no mutation: there is nothing to certify")
        self.methods = [ground.method.full_name for ground in self._grounds]
        self._only: Collection[CertificationRow] = ()
        self._on_row: OnRow | None = None
        self._rows = anyio.CapacityLimiter(_ROWS_AT_ONCE)
        self._kills = anyio.CapacityLimiter(_KILLS_AT_ONCE)

    async def run(self, only: Collection[CertificationRow], on_row: OnRow | None) -> None:
        """Try these rows. The plain call comes first: if that does not work, nothing else of its mutation is tried."""
        self._only, self._on_row = only, on_row
        async with AsyncExitStack() as stack:
            lives = None
            if hasattr(os, "fork") and any(row in KILL_ROWS for row in self._only):
                lives = await stack.enter_async_context(Lives.open(self._certification.spec()))
            async with anyio.create_task_group() as tasks:
                for ground in self._grounds:
                    tasks.start_soon(self._ground, ground, lives)

    async def _ground(self, ground: Ground, lives: Lives | None) -> None:
        plain = await self._tried(ground, CertificationRow.PLAIN, lives)
        if plain.outcome is RowOutcome.FAILED or CertificationRow.PLAIN in self._only:
            self._tell(plain)
        if plain.outcome is RowOutcome.FAILED:
            return
        async with anyio.create_task_group() as tasks:
            for row in CertificationRow:
                if row in self._only and row is not CertificationRow.PLAIN:
                    tasks.start_soon(self._row, ground, row, lives)

    async def _row(self, ground: Ground, row: CertificationRow, lives: Lives | None) -> None:
        place = self._kills if row in KILL_ROWS else nullcontext() if row in _WAITING else self._rows
        async with place:
            self._tell(await self._tried(ground, row, lives))

    async def _tried(self, ground: Ground, row: CertificationRow, lives: Lives | None) -> RowResult:
        began = anyio.current_time()
        outcome, seen = await _outcome(ground, row, lives)
        took_ms = int((anyio.current_time() - began) * 1000)
        return RowResult(ground.method.full_name, row, outcome, seen, took_ms)

    def _tell(self, result: RowResult) -> None:
        self.results.append(result)
        if self._on_row is not None:
            self._on_row(result)


def first_of(error: BaseException) -> BaseException:
    """The first error in a group of errors, which says more than the group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _outcome(ground: Ground, row: CertificationRow, lives: Lives | None) -> tuple[RowOutcome, str]:
    row_s = ground.certification.row_s
    words = f"it was not over after {row_s:g} s"
    for times in range(1, _TRIES + 1):
        began, seen = anyio.current_time(), None
        with attempt() as tried, anyio.move_on_after(row_s):
            seen = await _seen(ground.with_time(times), row, lives)
        match tried.error:
            case None if seen is not None:
                return RowOutcome.HELD, seen
            case None:
                break
            case RowDoesNotApply():
                return RowOutcome.DOES_NOT_APPLY, str(tried.error)
            case RowMoot():
                words = str(tried.error)
            case _:
                words = _words(tried.error)
                if not ground.pulse.was_slow(since=began):
                    break
    return RowOutcome.FAILED, words


def _words(error: Exception) -> str:
    first = first_of(error)
    return str(first) if isinstance(first, RowBroken) else described(first)


async def _seen(ground: Ground, row: CertificationRow, lives: Lives | None) -> str:
    if row in KILL_ROWS:
        if lives is None:
            raise RowDoesNotApply("this system cannot fork processes")
        return await KILL_ROWS[row](ground, lives)
    if row in NETWORK_ROWS:
        ground.need_network()
    # Caught before the connector is closed: the task group around it would make a group of it.
    seen = ""
    async with Trial.open(ground) as trial:
        with attempt() as tried:
            seen = await TRIAL_ROWS[row](trial)
    if tried.error is not None:
        raise tried.error
    return seen
