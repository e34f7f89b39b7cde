"""Tables and queries of SQLite and PostgreSQL. Every change has a receipt in its own transaction."""

from keep_actors.services.sql.address import DatabaseAddress
from keep_actors.services.sql.service import Sql
from keep_actors.services.sql.settings import ColumnSettings, QuerySettings, SqlSettings, TableSettings

__all__ = ["ColumnSettings", "DatabaseAddress", "QuerySettings", "Sql", "SqlSettings", "TableSettings"]
