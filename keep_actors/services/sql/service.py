"""The connector `sql`: its settings become methods, and its methods work in threads."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from keep_actors.connectors import ConnectorBug, MutationCall
from keep_actors.connectors.outcomes import Verdict
from keep_actors.services.service import Service, SettingsError
from keep_actors.services.sql.agreement import check_query, check_receipts, check_table
from keep_actors.services.sql.changes import Changer
from keep_actors.services.sql.database import Page, SqlDatabase, SqlFault, SqlLimits, SqlTransaction
from keep_actors.services.sql.evidence import (
    ByCallColumn,
    ByReceipt,
    ByRow,
    ChangeAction,
    Evidence,
    SqlChange,
    Unproven,
)
from keep_actors.services.sql.leaving import DatabaseThreads, Leaving
from keep_actors.services.sql.meanings import nothing_happened
from keep_actors.services.sql.offers import offers_of_query, offers_of_table
from keep_actors.services.sql.queries import Query, query_of
from keep_actors.services.sql.settings import SqlSettings
from keep_actors.services.sql.sqlite import OnSqlite
from keep_actors.services.sql.statements import ReceiptStatements, TableStatements
from keep_actors.services.sql.tables import Column, Rows, Table, checked_identifier, table_of

_CREATING: Final = "create the table of receipts"


class Sql(Service):
    """Tables and queries of a database."""

    name = "sql"
    settings_type = SqlSettings

    def __init__(self, settings: SqlSettings, *, name: str | None = None) -> None:
        super().__init__(settings, name=name)
        if settings.receipts:
            checked_identifier("receipts", settings.receipts)
        elif settings.create_receipts:
            raise SettingsError("create_receipts", "there is no name for that table; write receipts, or remove this")
        self._settings = settings
        has_receipts = bool(settings.receipts)
        self._tables = {
            section: table_of(section, each, has_receipts=has_receipts) for section, each in settings.tables.items()
        }
        self._queries = {section: query_of(section, each) for section, each in settings.queries.items()}
        if not self._tables and not self._queries:
            raise SettingsError("tables", "nothing is offered; write a section [….tables.NAME] or [….queries.NAME]")
        self._changes = any(set(each.allow) - {"get"} for each in self._tables.values())
        self._database = _database(settings, changes=self._changes)
        self._threads = DatabaseThreads(settings.connections_max, settings.connect_timeout_ms + 3 * settings.timeout_ms)
        self._statements: Mapping[str, TableStatements] = {}
        self._receipts = ReceiptStatements(settings.receipts, self._database) if has_receipts else None
        self.offer(
            offer
            for table in self._tables.values()
            for offer in offers_of_table(table, settings.timeout_ms, has_receipts=has_receipts)
        )
        self.offer(offers_of_query(query, settings.timeout_ms) for query in self._queries.values())

    async def open(self) -> None:
        """Compare the settings with the database. Raises `SettingsError`, or why it cannot be reached."""
        self._statements = await self._threads.run(self._agreed)

    # For its methods.

    def change(
        self, table: Table, action: ChangeAction, method: str, key: Mapping[Column, Any], values: Mapping[Column, Any]
    ) -> SqlChange:
        """A change with values of a script."""
        return SqlChange(action, method, self._statements_of(table), key, values)

    async def make(self, change: SqlChange, call: MutationCall) -> Any:
        """Make a change. Raises `InvalidCall` before anything is sent."""
        change.check()
        changer = self._changer(change)
        return await self._threads.run(lambda leaving: changer.make(change, call, leaving))

    async def look(self, change: SqlChange, call: MutationCall) -> Verdict:
        """Find out if a change was made."""
        changer = self._changer(change)
        return await self._threads.run(lambda leaving: changer.look(change, call, leaving))

    async def row(self, table: Table, key: Mapping[Column, Any]) -> Any:
        """The row with a key, or None."""
        statements = self._statements_of(table)
        sql, values = statements.select(key)
        page = await self._page(sql, values, rows_max=1)
        rows = _loaded(self, table.rows, page)
        return rows[0] if rows else None

    async def ask(self, query: Query, given: Mapping[Column, Any]) -> Any:
        """The answer of a query."""
        values = [self._database.stored(each.bound(given[each]), each.type_name) for each in query.parameters]
        page = await self._page(query.sql(self._database), values, query.rows_max)
        return {"rows": _loaded(self, query.rows, page), "more": page.has_more}

    async def _page(self, sql: str, values: Any, rows_max: int) -> Page:
        bytes_max = self._settings.answer_bytes_max

        def read(leaving: Leaving) -> Page:
            try:
                return self._database.page(leaving, sql, values, rows_max, bytes_max)
            except SqlFault as fault:
                raise nothing_happened(fault) from None

        return await self._threads.run(read)

    def _statements_of(self, table: Table) -> TableStatements:
        if table.section not in self._statements:
            raise ConnectorBug("the database was not compared with the settings; await open() first")
        return self._statements[table.section]

    def _changer(self, change: SqlChange) -> Changer:
        return Changer(self._database, self._evidence(change), self._settings.answer_bytes_max)

    def _evidence(self, change: SqlChange) -> Evidence:
        if self._receipts is not None:
            return ByReceipt(self._receipts)
        if change.action != "insert":
            return Unproven()
        return ByCallColumn() if change.statements.table.call_column else ByRow()

    # Of `open`, in a thread.

    def _agreed(self, leaving: Leaving) -> dict[str, TableStatements]:
        try:
            if self._receipts is not None and self._changes and self._settings.create_receipts:
                self._create_receipts(self._receipts, leaving)
            with self._database.reading(leaving) as transaction:
                return self._compared(transaction)
        except SqlFault as fault:
            raise nothing_happened(fault) from None

    def _create_receipts(self, receipts: ReceiptStatements, leaving: Leaving) -> None:
        with self._database.changing(leaving) as transaction:
            transaction.lock(_CREATING)  # two at once would be a unique violation in the catalog of PostgreSQL
            if self._database.find(transaction, self._settings.receipts) is None:
                transaction.run(receipts.create)
                transaction.commit()

    def _compared(self, transaction: SqlTransaction) -> dict[str, TableStatements]:
        if self._receipts is not None and self._changes:
            name = self._settings.receipts
            check_receipts(name, self._receipts.create, self._database.find(transaction, name))
        statements = {}
        for section, table in self._tables.items():
            found = self._database.find(transaction, table.name)
            check_table(section, table, found)
            assert found is not None, "it was checked"
            statements[section] = TableStatements(table, found, self._database)
        for section, query in self._queries.items():
            try:
                names = self._database.names_of(transaction, query.sql(self._database), [None] * len(query.parameters))
            except SqlFault as fault:
                raise SettingsError(f"queries.{section}.sql", f"cannot be asked: {fault}") from None
            check_query(section, query, names)
        return statements


def _database(settings: SqlSettings, *, changes: bool) -> SqlDatabase:
    limits = SqlLimits(settings.timeout_ms, settings.connect_timeout_ms, settings.lock_timeout_ms)
    if settings.database.url:
        if find_spec("psycopg") is None:
            raise SettingsError("database", "PostgreSQL needs `pip install 'keep-actors[postgres]'`")
        # Late: SQLite works without it.
        from keep_actors.services.sql.postgres import OnPostgres

        checked_identifier("schema", settings.schema or "public")
        return OnPostgres(settings.database.url, settings.password, settings.schema, limits, changes=changes)
    for setting in ("password", "schema"):
        if getattr(settings, setting):
            raise SettingsError(setting, "a file of SQLite has none; remove it")
    return OnSqlite(settings.database.file, limits)


def _loaded(connector: Sql, rows: Rows, page: Page) -> list[dict[str, Any]]:
    places = [page.names.index(each.name) for each in rows.columns]
    try:
        return [rows.loaded(tuple(row[place] for place in places)) for row in page.rows]
    except ValueError as error:
        raise ConnectorBug(f"a row does not fit the settings of {connector.name}: {error}") from None
