"""Rows as structs: named queries in, structs out."""

import types
import typing
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

import msgspec

from keep_storage.kept import K
from keep_storage.model import Record
from keep_storage.transaction import Queries, Row, SqlParams

R = TypeVar("R", bound=Record)
A = TypeVar("A", bound=msgspec.Struct)

Convert = Callable[[Any], Any]

as_params: Callable[[msgspec.Struct], dict[str, Any]] = msgspec.structs.asdict


@cache
def converters(struct: type[msgspec.Struct]) -> tuple[tuple[int, Convert], ...]:
    """The columns of a struct that are not stored as they are: enums and truth values, by position."""
    found: list[tuple[int, Convert]] = []
    for position, hint in enumerate(typing.get_type_hints(struct).values()):
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        for option in options:
            if option is bool:
                found.append((position, bool))
            elif isinstance(option, type) and issubclass(option, StrEnum):
                table: dict[str | None, StrEnum | None] = {state.value: state for state in option}
                if types.NoneType in options:
                    table[None] = None
                found.append((position, table.__getitem__))
    return tuple(found)


def decode(struct: type[A], row: Row) -> A:
    """A row as a struct: the columns are the fields, in order."""
    values = list(row)
    for position, convert in converters(struct):
        values[position] = convert(values[position])
    return struct(*values)


def find(q: Queries, struct: type[R], query: str, params: SqlParams) -> R | None:
    row = q.one(query, params)
    return None if row is None else decode(struct, row)


def find_by_id(q: Queries, struct: type[K], query: str, row_id: str) -> K | None:
    """A row of one of the tables that the writer keeps."""
    row = q.kept.find(struct, row_id)
    if row is None:
        found = q.one(query, {"id": row_id})
        if found is not None:
            row = decode(struct, found)
            q.kept.keep(row)
    return row


def find_all(q: Queries, struct: type[R], query: str, params: SqlParams) -> list[R]:
    return [decode(struct, row) for row in q.all(query, params)]


def one_or_all(workflow_id: str | None) -> dict[str, Any]:
    """Parameters of a query about one workflow, or about all."""
    return {"workflow_id": workflow_id, "everywhere": int(workflow_id is None)}
