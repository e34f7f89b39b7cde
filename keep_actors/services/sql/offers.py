"""The methods that tables and queries become: `insertCustomers`, `updateCustomers`, `getCustomers` and others."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from keep_actors.connectors import MutationCall, Offered, Options, Param, Risk, Verdict
from keep_actors.services.sql.evidence import ChangeAction, SqlChange
from keep_actors.services.sql.queries import Query
from keep_actors.services.sql.tables import Column, Table

if TYPE_CHECKING:
    from keep_actors.services.sql.service import Sql

_RISKS: Final[Mapping[ChangeAction, Risk]] = {"insert": "medium", "update": "medium", "delete": "high"}
_ABOUT: Final[Mapping[ChangeAction, str]] = {
    "insert": "Insert a row into {table}. Columns that are left out get what the database has for them.",
    "update": "Change the row of {table} with this key. Columns that are left out stay as they are.",
    "delete": "Delete the row of {table} with this key.",
}


def offers_of_table(table: Table, timeout_ms: int, *, has_receipts: bool) -> Iterator[Offered]:
    """The methods of a table."""
    for action in table.allow:
        if action == "get":
            yield _get(table, timeout_ms)
        else:
            yield _change(table, action, timeout_ms, has_receipts=has_receipts)


def offers_of_query(query: Query, timeout_ms: int) -> Offered:
    """The method of a query."""

    async def ask(connector: "Sql", **given: Any) -> Any:
        return await connector.ask(query, {each: _or_null(given[each.parameter]) for each in query.parameters})

    return Offered(
        function=ask,
        options=Options(kind="read", risk="low", name=query.title, timeout_ms=timeout_ms),
        params=[_parameter(each, may_be_left_out=each.is_nullable) for each in query.parameters],
        result=query.answer,
        description=query.description or f"Rows of a query, at most {query.rows_max}. `more`: there are others.",
    )


def _get(table: Table, timeout_ms: int) -> Offered:
    async def get(connector: "Sql", **given: Any) -> Any:
        return await connector.row(table, {each: given[each.parameter] for each in table.key})

    return Offered(
        function=get,
        options=Options(kind="read", risk="low", name=f"get{table.title}", by_id=True, timeout_ms=timeout_ms),
        params=[_parameter(each, may_be_left_out=False) for each in table.key],
        result=table.rows.type | None,
        description=f"The row of {table.name} with this key, or null.",
    )


def _change(table: Table, action: ChangeAction, timeout_ms: int, *, has_receipts: bool) -> Offered:
    name = f"{action}{table.title}"
    changed = _CHANGED[action]

    def change_of(connector: "Sql", call: MutationCall) -> SqlChange:
        given = {each: call.params[each.parameter] for each in table.columns if each.parameter in call.params}
        said = {column: value for column, value in given.items() if value is not msgspec.UNSET}
        key = {column: said[column] for column in table.key}
        return connector.change(table, action, name, key, changed(table, said))

    async def make(connector: "Sql", call: MutationCall, **_: Any) -> Any:
        return await connector.make(change_of(connector, call), call)

    async def look(connector: "Sql", call: MutationCall) -> Verdict:
        return await connector.look(change_of(connector, call), call)

    options = Options(
        kind="mutation",
        risk=_RISKS[action],
        name=name,
        timeout_ms=timeout_ms,
        marks_sent=True,
        identity=[each.parameter for each in table.key],
        check_hint=f"Look for the row with this key in the table {table.name} of the database.",
    )
    columns = table.key if action == "delete" else table.columns
    return Offered(
        function=make,
        options=options,
        params=[_parameter(each, may_be_left_out=_may_be_left_out(table, action, each)) for each in columns],
        result=None if action == "delete" else table.rows.type,
        description=_ABOUT[action].format(table=table.name),
        reconciler=look if has_receipts or action == "insert" else None,
    )


def _may_be_left_out(table: Table, action: ChangeAction, column: Column) -> bool:
    return column not in table.key and (action == "update" or column.is_nullable)


def _inserted(_: Table, said: Mapping[Column, Any]) -> Mapping[Column, Any]:
    return said


def _updated(table: Table, said: Mapping[Column, Any]) -> Mapping[Column, Any]:
    return {column: value for column, value in said.items() if column not in table.key}


def _deleted(_: Table, __: Mapping[Column, Any]) -> Mapping[Column, Any]:
    return {}


_CHANGED: Final[Mapping[ChangeAction, Callable[[Table, Mapping[Column, Any]], Mapping[Column, Any]]]] = {
    "insert": _inserted,
    "update": _updated,
    "delete": _deleted,
}


def _parameter(column: Column, *, may_be_left_out: bool) -> Param:
    if may_be_left_out:
        annotation = column.annotation | msgspec.UnsetType
        return Param(name=column.parameter, type=annotation, default=msgspec.UNSET, spelled=column.spelled)
    return Param(name=column.parameter, type=column.annotation, spelled=column.spelled)


def _or_null(value: Any) -> Any:
    return None if value is msgspec.UNSET else value
