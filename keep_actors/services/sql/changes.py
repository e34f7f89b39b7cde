"""A change in its transaction: lock the call, look for an earlier attempt, change one row, leave evidence, commit.

All of it runs in a thread. Nothing is committed after the host has stopped waiting: `call.sending` stands directly
before the COMMIT, and raises then.
"""

from typing import Any

import msgspec

from keep_actors.connectors import ConnectorBug, InvalidCall, MutationCall, PreconditionFailed
from keep_actors.connectors.outcomes import Verdict
from keep_actors.services.sql.database import DatabaseRow, SqlDatabase, SqlFault, SqlTransaction
from keep_actors.services.sql.evidence import Evidence, SqlChange
from keep_actors.services.sql.leaving import Leaving
from keep_actors.services.sql.meanings import UNIQUE, after_commit, nothing_happened
from keep_actors.services.sql.statements import SqlStatement


class Changer:
    """Makes changes in a database, and finds out if they were made."""

    def __init__(self, database: SqlDatabase, evidence: Evidence, result_bytes_max: int) -> None:
        self._database = database
        self._evidence = evidence
        self._result_bytes_max = result_bytes_max

    def make(self, change: SqlChange, call: MutationCall, leaving: Leaving) -> Any:
        """Make the change, and return its result. Raises a `ConnectorError` if nothing happened, else `Uncertain`."""
        try:
            with self._database.changing(leaving) as transaction:
                transaction.lock(call.idempotency_key)
                if earlier := self._evidence.before(transaction, change, call):
                    return earlier.result
                result = self._changed(transaction, change, call)
                self._evidence.keep(transaction, change, call, result)
                call.sending()
                _commit(transaction)
                return result
        except SqlFault as fault:
            assert not call.is_sent, "only the COMMIT comes after it, and what it raises is another error"
            raise nothing_happened(fault) from None

    def look(self, change: SqlChange, call: MutationCall, leaving: Leaving) -> Verdict:
        """Find out if the change was made. Waits for a COMMIT of the same call that is active."""
        try:
            with self._database.changing(leaving) as transaction:
                transaction.lock(call.idempotency_key)
                return self._evidence.verdict(transaction, change, call)
        except SqlFault as fault:
            raise nothing_happened(fault) from None

    def _changed(self, transaction: SqlTransaction, change: SqlChange, call: MutationCall) -> Any:
        table = change.statements.table
        try:
            rows = transaction.run(*_statement(change, call))
        except SqlFault as fault:
            if change.action == "insert" and fault.code in UNIQUE:
                # The call itself was looked for, under its lock: this row is another one.
                raise PreconditionFailed(f"there is a row with this key, or another unique value: {fault}") from None
            raise
        if not rows:
            what = (
                "a trigger or a rule has refused it" if change.action == "insert" else "there is no row with this key"
            )
            raise PreconditionFailed(f"nothing was changed in {table.name}: {what}")
        if len(rows) > 1:
            raise ConnectorBug(f"{len(rows)} rows of {table.name} have this key; it is not unique")
        return self._result(change, rows[0])

    def _result(self, change: SqlChange, row: DatabaseRow) -> Any:
        """The result, checked before the COMMIT: one that does not fit after it would be an unknown outcome."""
        if change.action == "delete":
            return None
        rows = change.statements.table.rows
        try:
            result = rows.loaded(row)
            said = msgspec.json.encode(result)
            msgspec.json.decode(said, type=rows.type)
        except ValueError as error:  # msgspec's are of this type
            raise ConnectorBug(
                f"the row of {change.statements.table.name} would not fit its settings: {error}"
            ) from None
        if len(said) > self._result_bytes_max:
            raise InvalidCall(
                f"the row would have {len(said):,} bytes, more than the {self._result_bytes_max:,} allowed"
            )
        return result


def _statement(change: SqlChange, call: MutationCall) -> SqlStatement:
    match change.action:
        case "insert":
            return change.statements.insert(change.values, call.idempotency_key)
        case "update":
            return change.statements.update(change.key, change.values)
        case "delete":
            return change.statements.delete(change.key)


def _commit(transaction: SqlTransaction) -> None:
    try:
        transaction.commit()
    except SqlFault as fault:
        raise after_commit(fault) from None
