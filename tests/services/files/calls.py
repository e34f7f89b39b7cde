"""Calls of a connector as the host makes them, with a ledger that forgets nothing but what a crash would lose."""

import itertools
from pathlib import Path
from typing import Any

import msgspec

from keep_actors.connectors import (
    Applied,
    CallOutcome,
    Catalog,
    Connector,
    MutationCall,
    ReadCall,
    ReadOutcome,
    Verdict,
)
from keep_actors.services.files import Files, FilesSettings

_KEYS = itertools.count(1)


class Caller:
    """Makes the calls of one connector."""

    def __init__(self, connector: Connector) -> None:
        self._methods = {method.name: method for method in Catalog([connector]).methods.values()}

    def call(self, name: str, params: dict[str, Any], **more: Any) -> MutationCall:
        """A mutation that is about to be made."""
        decoded = self._methods[name].decode_params(msgspec.json.encode(params).decode())
        defaults = {"idempotency_key": f"key-{next(_KEYS)}", "attempt": 1, "sent_at": None}
        ids = {"workflow_id": "wf_1", "run_id": "run_1", "mutation_id": "mut_1"}
        return MutationCall(**{**ids, **defaults, **more}, params=decoded.values)

    async def read(self, name: str, **params: Any) -> ReadOutcome:
        method = self._methods[name]
        decoded = method.decode_params(msgspec.json.encode(params).decode())
        return await method.read(decoded, ReadCall(workflow_id="wf_1", run_id="run_1"), 20_000)

    async def mutate(self, name: str, params: dict[str, Any], call: MutationCall | None = None) -> CallOutcome:
        method = self._methods[name]
        decoded = method.decode_params(msgspec.json.encode(params).decode())
        return await method.mutate(decoded, call or self.call(name, params), 20_000)

    async def reconcile(self, name: str, call: MutationCall) -> Verdict:
        """Ask as another process would after a crash: nothing of the call survives but its note."""
        again = MutationCall(
            idempotency_key=call.idempotency_key,
            workflow_id=call.workflow_id,
            run_id=call.run_id,
            mutation_id=call.mutation_id,
            params=call.params,
            sent_at=call.sent_at,
            attempt=call.attempt,
            earlier_note=call.noted,
        )
        verdict = await self._methods[name].reconcile(again, 20_000)
        return Applied(msgspec.json.decode(verdict.result)) if isinstance(verdict, Applied) else verdict


def said(outcome: ReadOutcome | CallOutcome) -> Any:
    """The JSON value of an answer."""
    text = getattr(outcome, "json_text", None)
    assert text is not None, outcome
    return msgspec.json.decode(text)


class Lost(BaseException):
    """A process that ends here: nothing of the connector may catch it."""


def writer(root: Path, **more: Any) -> Caller:
    """Calls of a connector for this folder, which may change what is in it."""
    return Caller(Files(FilesSettings(root=root, allow=("read", "write"), **more)))
