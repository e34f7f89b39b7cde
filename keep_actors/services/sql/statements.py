"""The statements for a table of the settings. Their values are always bound; their names are the operator's, quoted."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from keep_actors.connectors import InvalidCall
from keep_actors.services.sql.agreement import is_kept
from keep_actors.services.sql.database import Dialect, TableFound
from keep_actors.services.sql.tables import Column, Table, quoted, sql_of


class SqlStatement(NamedTuple):
    """SQL and what is bound to its places."""

    sql: str
    values: Sequence[Any]


class TableStatements:
    """The statements for one table of one database."""

    def __init__(self, table: Table, found: TableFound, dialect: Dialect) -> None:
        self.table = table
        self._found = found
        self._dialect = dialect
        self._at = quoted(dialect.default_schema, table.name)
        self._row = ", ".join(quoted(each.name) for each in table.columns)

    def bound(self, given: Mapping[Column, Any]) -> dict[Column, Any]:
        """Values to bind. Raises `InvalidCall` for one that the database would not keep as it is."""
        bound = {column: column.bound(value) for column, value in given.items()}
        for column, value in bound.items():
            if isinstance(value, Decimal) and not is_kept(self._found.columns[column.name], _decimals(value)):
                there = self._found.columns[column.name].type
                raise InvalidCall(f"{column.spelled} has more decimals than the column, which is {there}")
        return bound

    def insert(self, values: Mapping[Column, Any], call_key: str) -> SqlStatement:
        """Insert a row, and answer it."""
        columns, places, given = [], [], []
        for number, (column, value) in enumerate(self.bound(values).items(), 1):
            columns.append(quoted(column.name))
            places.append(self._place(number, column))
            given.append(self._dialect.stored(value, column.type_name))
        if self.table.call_column:
            columns.append(quoted(self.table.call_column))
            places.append(self._dialect.place(len(given) + 1, self._found.columns[self.table.call_column].cast))
            given.append(call_key)
        sql = sql_of("INSERT INTO", self._at, _listed(columns), "VALUES", _listed(places), "RETURNING", self._row)
        return SqlStatement(sql, given)

    def update(self, key: Mapping[Column, Any], values: Mapping[Column, Any]) -> SqlStatement:
        """Change the row with a key, and answer it."""
        changes = ", ".join(f"{quoted(each.name)} = {self._place(i, each)}" for i, each in enumerate(values, 1))
        where, given = self._where(key, len(values))
        stored = self._stored(values)
        return SqlStatement(
            sql_of("UPDATE", self._at, "SET", changes, where, "RETURNING", self._row), [*stored, *given]
        )

    def delete(self, key: Mapping[Column, Any]) -> SqlStatement:
        """Delete the row with a key, and answer its key."""
        where, given = self._where(key)
        answered = ", ".join(quoted(each.name) for each in self.table.key)
        return SqlStatement(sql_of("DELETE FROM", self._at, where, "RETURNING", answered), given)

    def select(self, key: Mapping[Column, Any]) -> SqlStatement:
        """The row with a key."""
        where, given = self._where(key)
        return SqlStatement(sql_of("SELECT", self._row, "FROM", self._at, where), given)

    def select_of_call(self, call_key: str) -> SqlStatement:
        """The row that a call inserted."""
        place = self._dialect.place(1, self._found.columns[self.table.call_column].cast)
        where = f"WHERE {quoted(self.table.call_column)} = {place}"
        return SqlStatement(sql_of("SELECT", self._row, "FROM", self._at, where), [call_key])

    def _where(self, key: Mapping[Column, Any], before: int = 0) -> SqlStatement:
        places = [f"{quoted(each.name)} = {self._place(i, each)}" for i, each in enumerate(key, before + 1)]
        return SqlStatement(f"WHERE {' AND '.join(places)}", self._stored(key))

    def _stored(self, values: Mapping[Column, Any]) -> list[Any]:
        return [self._dialect.stored(value, column.type_name) for column, value in self.bound(values).items()]

    def _place(self, number: int, column: Column) -> str:
        return self._dialect.place(number, self._found.columns[column.name].cast)


class ReceiptStatements:
    """The statements for the table of receipts."""

    def __init__(self, name: str, dialect: Dialect) -> None:
        self._at = quoted(dialect.default_schema, name)
        self._places = [dialect.place(number, "text") for number in range(1, 5)]
        self.create = dialect.receipts_table.format(table=self._at)

    def select(self, call_key: str) -> SqlStatement:
        """The method, digest and result of a call."""
        return SqlStatement(
            sql_of("SELECT method, digest, result FROM", self._at, "WHERE call =", self._places[0]), [call_key]
        )

    def insert(self, call_key: str, method: str, digest: str, result: str) -> SqlStatement:
        """Keep a receipt."""
        sql = sql_of("INSERT INTO", self._at, "(call, method, digest, result) VALUES", _listed(self._places))
        return SqlStatement(sql, [call_key, method, digest, result])


def _listed(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)})"


def _decimals(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0
