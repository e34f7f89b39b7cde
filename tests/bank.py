"""The bank of the tests, to be faked: its methods are never called."""

from keep_actors.connectors import Applied, Connector, MutationCall, NotApplied, Retry, mutation, read
from keep_actors.testing import Fake

TIMEOUT_MS = 10_000
SETTLE_MS = 20_000


class Bank(Connector):
    """A payment can be looked for afterwards, a wire cannot."""

    name = "bank"

    @read
    async def balance(self, account: str) -> int:
        raise AssertionError(f"the real one was called: {account}")

    @mutation
    async def wire(self, to: str) -> str:
        raise AssertionError(f"the real one was called: {to}")

    @mutation(timeout_ms=TIMEOUT_MS, settle_ms=SETTLE_MS)
    async def pay(self, to: str) -> str:
        raise AssertionError(f"the real one was called: {to}")

    @pay.reconcile
    async def paid(self, call: MutationCall) -> Applied | NotApplied | Retry:
        raise AssertionError(f"the real one was called: {call}")


def fake_bank() -> Fake:
    return Fake(Bank, answers={"pay": lambda params: f"paid {params['to']}", "wire": "wired", "balance": 12})


def payees(bank: Fake) -> list[str]:
    """Whom it paid, in order."""
    return [effect.params["to"] for effect in bank.world.effects]
