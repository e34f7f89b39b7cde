"""The agreement of settings with a database: every table, column, type and key is there, or an error says which not."""

from collections.abc import Iterable, Sequence

from keep_actors.services.service import SettingsError
from keep_actors.services.sql.database import ColumnFound, TableFound
from keep_actors.services.sql.queries import Query
from keep_actors.services.sql.tables import Column, Table

RECEIPT_COLUMNS = ("call", "method", "digest", "result", "made_at")


def check_table(section: str, table: Table, found: TableFound | None) -> None:
    """Raise `SettingsError` if the database does not have this table as it is declared."""
    where = f"tables.{section}"
    if found is None:
        raise SettingsError(where, f"the database has no table {table.name}; create it, or write its name as `table`")
    for column in table.columns:
        _check_column(f"{where}.columns.{column.name}", column, found)
    _check_unique(f"{where}.key", [each.name for each in table.key], found)
    if table.call_column:
        _check_column(f"{where}.call_column", Column(table.call_column, "call", "text", True), found)
        _check_unique(f"{where}.call_column", [table.call_column], found)


def _check_column(where: str, column: Column, found: TableFound) -> None:
    there = found.columns.get(column.name)
    if there is None:
        raise SettingsError(where, f"the database has no such column; there are: {', '.join(found.columns)}")
    if there.family not in column.type.postgres | column.type.affinities:
        fitting = " or ".join(sorted(column.type.postgres if there.cast else column.type.affinities))
        raise SettingsError(where, f"is {there.type} in the database, which is not {column.type_name}: {fitting}")
    if not there.is_exact:
        raise SettingsError(where, f"is {there.type} in the database, which rounds; give it all six decimals")


def _check_unique(where: str, key: Sequence[str], found: TableFound) -> None:
    if frozenset(key) not in found.unique:
        what = f"the database has no unique index of exactly {', '.join(key)}; create one, or name another key"
        raise SettingsError(where, what)


def check_receipts(name: str, statement: str, found: TableFound | None) -> None:
    """Raise `SettingsError` if the table of receipts is missing, or is another table."""
    if found is None:
        what = f"the database has no table {name}; write create_receipts = true, or create it:\n{statement}"
        raise SettingsError("receipts", f'{what}\nWithout, write receipts = "" and read what becomes uncertain.')
    missing = [each for each in RECEIPT_COLUMNS if each not in found.columns]
    if missing or frozenset(["call"]) not in found.unique:
        raise SettingsError(
            "receipts", f"the table {name} is not one of receipts; name another. It would be:\n{statement}"
        )


def check_query(section: str, query: Query, names: Iterable[str]) -> None:
    """Raise `SettingsError` if a query does not answer the declared columns."""
    declared, answered = [each.name for each in query.rows.columns], list(names)
    if sorted(declared) != sorted(answered):
        what = (
            f"its sql answers the columns {', '.join(answered)}, not {', '.join(declared)}; declare these, in any order"
        )
        raise SettingsError(f"queries.{section}.columns", what)


def is_kept(there: ColumnFound, decimals: int) -> bool:
    """True if the column does not round a value with so many decimals."""
    return there.scale is None or decimals <= there.scale
