"""What the tests of `sql` share: a database that is made for one test, and calls as the host makes them."""

import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psycopg

from keep_actors.connectors import Catalog, Connector, MutationCall, Params, ReadCall
from keep_actors.connectors.outcomes import CallOutcome, ReadOutcome, Verdict
from keep_actors.services.configuration import read_settings
from keep_actors.services.sql import Sql, SqlSettings

LIMIT_MS = 5_000
NAMES = {"columns": {"id": "text", "name": "text?"}, "key": ["id"]}
ALL = ["insert", "update", "delete", "get"]


class World(Protocol):
    """A database that only this test knows."""

    kind: str

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement without the connector, and commit it."""
        ...

    def settings(self, **more: Any) -> SqlSettings:
        """Settings for this database."""
        ...


@dataclass
class SqliteWorld:
    """A file."""

    file: Path
    kind: str = "sqlite"

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.file)) as connection:
            rows = connection.execute(statement, values).fetchall()
            connection.commit()
            return rows

    def settings(self, **more: Any) -> SqlSettings:
        return read_settings(SqlSettings, {"database": self.file.name, **_given(more)}, self.file.parent)


@dataclass
class PostgresWorld:
    """A schema of a server."""

    url: str
    schema: str
    kind: str = "postgres"

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, options=f"-c search_path={self.schema}") as connection:
            cursor = connection.execute(statement.replace("?", "%s").encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def settings(self, **more: Any) -> SqlSettings:
        given = {"database": self.url, "schema": self.schema, **_given(more)}
        return read_settings(SqlSettings, given, Path())


def _given(more: Mapping[str, Any]) -> dict[str, Any]:
    tables = {"people": {**NAMES, "allow": ALL}}
    return {"create_receipts": "receipts" not in more, "tables": tables, "lock_timeout_ms": 500, **more}


class Calls:
    """Calls of one connector."""

    def __init__(self, connector: Connector) -> None:
        self.catalog = Catalog([connector])

    def call(self, method: str, params: Any, key: str, attempt: int = 1) -> tuple[Params, MutationCall]:
        """The call that the host makes."""
        decoded = self.catalog.methods[f"sql.{method}"].decode_params(msgspec.json.encode(params).decode())
        call = MutationCall(
            idempotency_key=key,
            workflow_id="wf_1",
            run_id="run_1",
            mutation_id=key,
            params=decoded.values,
            sent_at=None,
            attempt=attempt,
        )
        return decoded, call

    async def mutate(
        self, method: str, params: Any, key: str = "k1", *, attempt: int = 1, timeout_ms: int = LIMIT_MS
    ) -> CallOutcome:
        """Make a call."""
        decoded, call = self.call(method, params, key, attempt)
        return await self.catalog.methods[f"sql.{method}"].mutate(decoded, call, timeout_ms)

    async def look(self, method: str, params: Any, key: str = "k1", timeout_ms: int = LIMIT_MS) -> Verdict:
        """Reconcile a call."""
        return await self.catalog.methods[f"sql.{method}"].reconcile(self.call(method, params, key)[1], timeout_ms)

    async def read(self, method: str, params: Any) -> ReadOutcome:
        """Read."""
        decoded, _ = self.call(method, params, "")
        call = ReadCall(workflow_id="wf_1", run_id="run_1")
        return await self.catalog.methods[f"sql.{method}"].read(decoded, call, LIMIT_MS)


@asynccontextmanager
async def opened(settings: SqlSettings) -> AsyncIterator[Calls]:
    """The connector, open."""
    calls = Calls(Sql(settings))
    async with calls.catalog.opened():
        yield calls
