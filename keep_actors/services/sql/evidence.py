"""Evidence that a change was made: a receipt in its transaction, the key of the call in the row, or the row alone.

A verdict is given only if it is certain. All of this runs in a transaction that holds the lock of the call.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from keep_actors.connectors import (
    Applied,
    ConnectorBug,
    InvalidCall,
    MutationCall,
    NotApplied,
    PreconditionFailed,
    Retry,
    Uncertain,
)
from keep_actors.connectors.outcomes import Verdict
from keep_actors.services.sql.database import DatabaseRow, SqlTransaction
from keep_actors.services.sql.statements import ReceiptStatements, SqlStatement, TableStatements
from keep_actors.services.sql.tables import Column

ChangeAction: TypeAlias = Literal["insert", "update", "delete"]


@dataclass(frozen=True, slots=True)
class SqlChange:
    """One change of one row, with values as a script gave them."""

    action: ChangeAction
    method: str
    """The name of the method in scripts."""
    statements: TableStatements
    key: Mapping[Column, Any]
    values: Mapping[Column, Any]
    """Those that are set. For an insert, with the key."""

    def check(self) -> None:
        """Raise `InvalidCall` for values that the database would not keep as they are, or if there are none."""
        if self.action == "update" and not self.values:
            names = ", ".join(each.spelled for each in self.statements.table.payload)
            raise InvalidCall(f"nothing is to be changed; give one of {names}")
        self.statements.bound(self.key)
        self.statements.bound(self.values)

    def digest(self, call: MutationCall) -> str:
        """The fingerprint of what the call asks for."""
        # Without what was left out: a column that is declared later does not change the fingerprint of earlier calls.
        given = {name: value for name, value in call.params.items() if value is not msgspec.UNSET}
        return hashlib.sha256(msgspec.json.encode([self.method, given], order="sorted")).hexdigest()


class Evidence(Protocol):
    """How it is known that a call has made its change."""

    def before(self, transaction: SqlTransaction, change: SqlChange, call: MutationCall, /) -> Applied | None:
        """The result of this call if it was made before. Raises if this cannot be known."""
        ...

    def keep(self, transaction: SqlTransaction, change: SqlChange, call: MutationCall, result: Any, /) -> None:
        """Leave evidence in the transaction of the change."""
        ...

    def verdict(self, transaction: SqlTransaction, change: SqlChange, call: MutationCall, /) -> Verdict:
        """Find out if the call made its change."""
        ...


class ByReceipt:
    """A receipt, written in the transaction of the change: it is there if and only if the change was made."""

    def __init__(self, statements: ReceiptStatements) -> None:
        self._statements = statements

    def before(self, transaction: SqlTransaction, change: SqlChange, call: MutationCall) -> Applied | None:
        """The result in the receipt."""
        found = transaction.run(*self._statements.select(call.idempotency_key))
        if not found:
            return None
        [(method, digest, result)] = found
        if (method, digest) != (change.method, change.digest(call)):
            raise ConnectorBug(f"the key of this call has a receipt for another call of {method}")
        return Applied(msgspec.json.decode(result))

    def keep(self, transaction: SqlTransaction, change: SqlChange, call: MutationCall, result: Any) -> None:
        """Write the receipt."""
        said = msgspec.json.encode(result).decode()
        transaction.run(*self._statements.insert(call.idempotency_key, change.method, change.digest(call), said))

    def verdict(self, transaction: SqlTransaction, change: SqlChange, call: MutationCall) -> Verdict:
        """The receipt, or its absence."""
        return self.before(transaction, change, call) or NotApplied()


class ByCallColumn:
    """The key of the call, in a column of the row that it inserted."""

    def before(self, transaction: SqlTransaction, change: SqlChange, call: MutationCall) -> Applied | None:
        """The row with the key of the call."""
        row = _only_row(transaction, change.statements.select_of_call(call.idempotency_key))
        return None if row is None else _applied(change, row)

    def keep(self, *_: object) -> None:
        """Do nothing: the insert had the key."""

    def verdict(self, transaction: SqlTransaction, change: SqlChange, call: MutationCall) -> Verdict:
        """The row, or its absence."""
        return self.before(transaction, change, call) or _absent(change)


class ByRow:
    """The row itself: its key is unique, so a row with other data is not certainly another one."""

    def before(self, transaction: SqlTransaction, change: SqlChange, call: MutationCall) -> Applied | None:
        """On a second attempt, the row of the first, if it has the same data."""
        row = _only_row(transaction, change.statements.select(change.key))
        if row is None:
            return None
        if call.attempt == 1:
            raise PreconditionFailed("there is a row with this key")
        if _is_as_asked(change, row):
            return _applied(change, row)
        raise Uncertain(
            "there is a row with this key and other data: an earlier attempt, changed since, or another row"
        )

    def keep(self, *_: object) -> None:
        """Do nothing: the row is the evidence."""

    def verdict(self, transaction: SqlTransaction, change: SqlChange, _: MutationCall) -> Verdict:
        """The row with the data that was asked for."""
        row = _only_row(transaction, change.statements.select(change.key))
        if row is None:
            return _absent(change)
        if _is_as_asked(change, row):
            return _applied(change, row)
        return Retry("there is a row with this key and other data: it was changed since, or is another row")


class Unproven:
    """No evidence: an update or a delete without a receipt leaves none. A person is asked."""

    def before(self, *_: object) -> Applied | None:
        """Return None: no earlier attempt is known."""
        return None

    def keep(self, *_: object) -> None:
        """Leave nothing behind."""

    def verdict(self, *_: object) -> Verdict:
        """Return `Retry`: the database cannot tell."""
        return Retry("a change without receipts leaves no evidence")


def _applied(change: SqlChange, row: DatabaseRow) -> Applied:
    try:
        return Applied(change.statements.table.rows.loaded(row))
    except ValueError as error:
        raise Uncertain(f"the row is there, and does not fit the settings: {error}") from None


def _absent(change: SqlChange) -> Verdict:
    if change.statements.table.keeps_rows:
        return NotApplied()
    return Retry("the row is not there: it was not inserted, or it was deleted since; receipts would tell")


def _only_row(transaction: SqlTransaction, statement: SqlStatement) -> DatabaseRow | None:
    rows = transaction.run(*statement)
    return rows[0] if rows else None


def _is_as_asked(change: SqlChange, row: DatabaseRow) -> bool:
    """True if the row has all values that were given; those that the database has filled in are not compared."""
    columns = change.statements.table.columns
    asked = change.statements.bound(change.values)
    try:
        there = {each: each.bound(each.loaded(value)) for each, value in zip(columns, row, strict=True)}
    except (ValueError, InvalidCall):
        return False  # a script could not have written it
    return all(there[column] == value for column, value in asked.items())
