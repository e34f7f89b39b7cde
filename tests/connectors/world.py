"""A connector that does as it is told, and the calls to tell it with."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from keep_actors.connectors import Catalog, Connector, Method, MutationCall, Params, ReadCall, Verdict, mutation, read

Step = Callable[[], Awaitable[Any]]


class Receipt(msgspec.Struct, rename="camel"):
    row_id: str


class Planned(Connector):
    """Whatever is asked of it, it takes the step it was given."""

    name = "planned"

    def __init__(self, step: Step) -> None:
        self.step = step

    @read
    async def look(self, call: ReadCall) -> Receipt:
        call.report_cost(3)
        return await self._answer()

    @mutation
    async def act(self, call: MutationCall) -> Receipt:
        call.report_cost(5)
        return await self._answer()

    @act.reconcile
    async def find(self, call: MutationCall) -> Verdict:
        call.report_cost(7)
        verdict: Verdict = await self.step()
        return verdict

    @mutation(settle_ms=1000)
    async def act_unseen(self) -> Receipt:
        return await self._answer()

    @act_unseen.reconcile
    async def find_later(self, _: MutationCall) -> Verdict:
        verdict: Verdict = await self.step()
        return verdict

    async def _answer(self) -> Receipt:
        receipt: Receipt = await self.step()
        return receipt


def planned(name: str, step: Step) -> Method:
    """A method that takes this step."""
    return method_of(Planned(step), name)


def method_of(connector: Connector, name: str) -> Method:
    method = Catalog([connector]).get(f"{connector.name}.{name}")
    assert method is not None
    return method


def nothing(method: Method) -> Params:
    return method.decode_params("{}")


def read_call() -> ReadCall:
    return ReadCall(workflow_id="wf_1", run_id="run_1")


def mutation_call(params: Params | None = None, key: str = "key_1") -> MutationCall:
    return MutationCall(
        idempotency_key=key,
        workflow_id="wf_1",
        run_id="run_1",
        mutation_id="mut_1",
        params=params.values if params else {},
        sent_at=1000,
        attempt=1,
    )


def returning(value: object) -> Step:
    async def step() -> object:
        return value

    return step


def raising(error: BaseException) -> Step:
    async def step() -> object:
        raise error

    return step
