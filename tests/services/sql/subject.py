"""`sql` as a subject of certification, on a file of SQLite and on a real PostgreSQL.

Triggers count every insert, update and delete in a table of their own: an effect that was undone again is seen too.
"""

import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psycopg
from anyio.to_thread import run_sync

from keep_actors.connectors import Connector
from keep_actors.services.sql import DatabaseAddress, Sql, SqlSettings, TableSettings
from keep_actors.testing.certification import Certification, RunningService
from tests.services.servers.postgres import USER, running_postgres

_ROWS: Final = 3_000
_TABLE: Final = "CREATE TABLE customers (id text PRIMARY KEY, name text NOT NULL)"
_EFFECTS: Final = "CREATE TABLE effects (what text NOT NULL, id text NOT NULL)"
_OLD: Final[Mapping[str, str]] = {"insert": "NEW", "update": "NEW", "delete": "OLD"}
_SQLITE: Final = (
    _TABLE,
    _EFFECTS,
    f"""WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {_ROWS})
    INSERT INTO customers SELECT kind || n, 'before' FROM numbers, (SELECT 'update-' AS kind UNION SELECT 'delete-')""",
    *(
        f"CREATE TRIGGER count_{what} AFTER {what} ON customers BEGIN"
        f" INSERT INTO effects VALUES ('{what}', {row}.id); END"
        for what, row in _OLD.items()
    ),
)
_POSTGRES: Final = (
    _TABLE,
    _EFFECTS,
    f"INSERT INTO customers SELECT kind || n, 'before' FROM generate_series(1, {_ROWS}) AS n,"
    " (VALUES ('update-'), ('delete-')) AS k(kind)",
    """CREATE FUNCTION count_effect() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      INSERT INTO effects VALUES (lower(TG_OP), CASE TG_OP WHEN 'DELETE' THEN OLD.id ELSE NEW.id END); RETURN NULL;
    END $$""",
    "CREATE TRIGGER count AFTER INSERT OR UPDATE OR DELETE ON customers FOR EACH ROW EXECUTE FUNCTION count_effect()",
)
_COUNT: Final = "SELECT count(*) FROM effects WHERE what = {} AND id = {}"


def settings(database: str) -> SqlSettings:
    """The settings that the subjects share."""
    return SqlSettings(
        database=DatabaseAddress(database),
        create_receipts=True,
        lock_timeout_ms=1_000,
        tables={
            "customers": TableSettings(
                columns={"id": "text", "name": "text"}, key=["id"], allow=["insert", "update", "delete", "get"]
            )
        },
    )


def example(method: str, number: int) -> Mapping[str, Any]:
    """A row of its own for each number; the service has those that are updated and deleted."""
    action = method.removesuffix("Customers")
    key = {"id": f"{action}-{number}"}
    return key if action == "delete" else {**key, "name": f"name {number}"}


class SqliteCertification(Certification):
    """A file of SQLite."""

    @asynccontextmanager
    async def service(self) -> AsyncIterator[RunningService]:
        """Make the file."""
        with TemporaryDirectory(prefix="keep-sql-") as folder:
            file = Path(folder) / "crm.db"
            with closing(sqlite3.connect(file)) as connection:
                for statement in _SQLITE:
                    connection.execute(statement)
                connection.commit()
            yield RunningService(places={"file": str(file)})

    def connector(self, service: RunningService) -> Connector:
        """The connector on this file."""
        return Sql(settings(service.places["file"]), name="crm")

    def example(self, method: str, number: int) -> Mapping[str, Any]:
        """A row of its own."""
        return example(method, number)

    async def effects(self, service: RunningService, method: str, params: Mapping[str, Any]) -> int:
        """Count what the triggers have seen."""
        with closing(sqlite3.connect(service.places["file"])) as connection:
            values = (method.removesuffix("Customers"), params["id"])
            [(count,)] = connection.execute(_COUNT.format("?", "?"), values)
            return int(count)


class PostgresCertification(Certification):
    """A PostgreSQL on loopback."""

    # With its end: a transaction begins with READ COMMITTED.
    decisive = {f"{action}Customers": b"COMMIT\0" for action in _OLD}  # noqa: RUF012  # typed as a ClassVar above

    @asynccontextmanager
    async def service(self) -> AsyncIterator[RunningService]:
        """Start the server."""
        with running_postgres() as server:
            with psycopg.connect(server.url) as connection:
                for statement in _POSTGRES:
                    connection.execute(statement.encode())
            yield RunningService(addresses={"postgres": ("127.0.0.1", server.port)})

    def connector(self, service: RunningService) -> Connector:
        """The connector on this server."""
        return Sql(settings(_url(service)), name="crm")

    def example(self, method: str, number: int) -> Mapping[str, Any]:
        """A row of its own."""
        return example(method, number)

    async def effects(self, service: RunningService, method: str, params: Mapping[str, Any]) -> int:
        """Count what the triggers have seen."""

        def counted() -> int:
            with psycopg.connect(_url(service)) as connection:
                values = (method.removesuffix("Customers"), params["id"])
                [(count,)] = connection.execute(_COUNT.format("%s", "%s").encode(), values)
                return int(count)

        return await run_sync(counted)


def _url(service: RunningService) -> str:
    host, port = service.addresses["postgres"]
    return f"postgresql://{USER}@{host}:{port}/postgres"
