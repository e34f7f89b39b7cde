"""A storage that refuses on purpose, at the place where operations are looked up."""

from collections.abc import Sequence
from typing import Any

import pytest

from keep_storage import Store, manager
from keep_storage import operations as ops
from keep_storage.errors import Reason, Rejected
from keep_storage.ids import Millis
from keep_storage.operations import OperationOutcome
from keep_storage.transaction import Transaction


def refuse_next(
    patch: pytest.MonkeyPatch, operation: type[ops.Operation[Any]], times: int = 1, reason: Reason = Reason.ID_TAKEN
) -> list[ops.Operation[Any]]:
    """Refuse so many of these. Returns the refused ones, as they come.

    A commit that applies its batch again meets the same refusals again.
    """
    real, commit = manager.OPERATIONS[operation], Store.commit
    refused: list[ops.Operation[Any]] = []
    refused_now: list[ops.Operation[Any]] = []

    def commit_batch(store: Store, batch: Sequence[ops.Operation[Any]]) -> Sequence[OperationOutcome]:
        refused_now.clear()
        return commit(store, batch)

    def apply(tx: Transaction, given: Any, now: Millis) -> Any:
        if any(each is given for each in refused_now):
            raise Rejected(reason, "Nobody expects this.")
        if len(refused) < times:
            refused.append(given)
            refused_now.append(given)
            raise Rejected(reason, "Nobody expects this.")
        return real(tx, given, now)

    apply.__name__ = real.__name__
    patch.setattr(Store, "commit", commit_batch)
    patch.setitem(manager.OPERATIONS, operation, apply)
    return refused
