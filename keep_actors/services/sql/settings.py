"""The settings of `sql`: a database, tables that may be changed, and queries that may be asked."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from keep_actors.outbound.secret import Secret
from keep_actors.services.service import ServiceSettings
from keep_actors.services.sql.address import DatabaseAddress

TableAction: TypeAlias = Literal["insert", "update", "delete", "get"]


class ColumnSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column whose name in scripts is not that of the database in camelCase."""

    type: str
    name: str
    """Its name in scripts."""


class TableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table: the columns that scripts know, and what they may do."""

    columns: Mapping[str, str | ColumnSettings]
    """Name in the database and type: `{ id = "text", name = "text?" }`. `?`: it may be null and may be left out."""
    key: Sequence[str]
    """The columns that say which row. The database must have a unique index of exactly these."""
    allow: Sequence[TableAction]
    table: str = ""
    """Its name in the database, if that is not the name of this section."""
    call_column: str = ""
    """Without receipts: a text column with a unique index, where an insert leaves the key of its call."""
    keeps_rows: bool = False
    """Without receipts: the operator's word that no row is deleted while an insert of it may still be in question."""


class QuerySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One query, which only reads."""

    sql: str
    """One SELECT, with a parameter written as `:name`."""
    columns: Mapping[str, str | ColumnSettings]
    """The columns of its result, and their types."""
    parameters: Mapping[str, str] = {}
    rows_max: Annotated[int, Meta(ge=1, le=10_000)] = 100
    description: str = ""


class SqlSettings(ServiceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A database, and what scripts may do in it."""

    database: DatabaseAddress
    """A file of SQLite, or the URL of a PostgreSQL database, without a password."""
    password: Secret | None = None
    schema: str = ""
    """The schema of all tables of a PostgreSQL database. Empty: `public`."""
    tables: Mapping[str, TableSettings] = {}
    queries: Mapping[str, QuerySettings] = {}
    receipts: str = "keep_calls"
    """The table with a receipt of every change, written in its transaction. Empty: there is none."""
    create_receipts: bool = False
    """Create that table if it is missing."""
    timeout_ms: Annotated[int, Meta(ge=100, le=600_000)] = 10_000
    """For a call, each of its statements, and a transaction that waits for us."""
    connect_timeout_ms: Annotated[int, Meta(ge=1_000, le=60_000)] = 5_000
    lock_timeout_ms: Annotated[int, Meta(ge=10, le=600_000)] = 3_000
    """How long a statement waits for a lock, and SQLite for its turn to write."""
    answer_bytes_max: Annotated[int, Meta(ge=1_000, le=64_000_000)] = 256_000
    """For the rows of one answer."""
    connections_max: Annotated[int, Meta(ge=1, le=100)] = 4
    """Calls at once, each with a connection of its own."""
