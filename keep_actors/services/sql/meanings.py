"""The table of what an error of a database means. Only the moment of the COMMIT and this table decide; nothing guesses.

Before the COMMIT every error means that nothing happened: a transaction without it is rolled back. After it only an
answer of the database that is listed here means that; all else is unknown.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from keep_actors.connectors import (
    AuthRequired,
    ConnectorBug,
    ConnectorError,
    InvalidCall,
    PermissionDenied,
    PreconditionFailed,
    Transient,
    Uncertain,
)
from keep_actors.services.sql.database import SqlFault

SqlFailure: TypeAlias = type[ConnectorError]

NOT_CONNECTED: Final = "not connected"
NOT_SIGNED_IN: Final = "not signed in"
CONNECTION_LOST: Final = "connection lost"
NOT_SUPPORTED: Final = "not supported"
NOT_TRUSTED: Final = "not trusted"
OURS: Final = (NOT_CONNECTED, NOT_SIGNED_IN, CONNECTION_LOST, NOT_SUPPORTED, NOT_TRUSTED)
"""Codes of our own, for what has none."""

MEANINGS: Final[Mapping[str, SqlFailure]] = {
    NOT_CONNECTED: Transient,
    NOT_SIGNED_IN: AuthRequired,
    CONNECTION_LOST: Transient,
    NOT_SUPPORTED: ConnectorBug,
    NOT_TRUSTED: ConnectorBug,
    # PostgreSQL: SQLSTATE, or its class.
    "08": Transient,
    "0A": ConnectorBug,
    "22": InvalidCall,  # a value that the column does not take
    "23": PreconditionFailed,  # what is in the database already is against it
    "23502": InvalidCall,  # a missing value
    "23514": InvalidCall,  # a CHECK
    "25006": PreconditionFailed,  # the database, or the user, may only read
    "25": Transient,
    "26": Transient,
    "28": AuthRequired,
    "3D": PreconditionFailed,
    "3F": ConnectorBug,
    "40": Transient,  # deadlock, serialization
    "42": ConnectorBug,  # a table that has changed since the start
    "42501": PermissionDenied,
    "428C9": InvalidCall,  # a value for a generated column
    "44": InvalidCall,
    "53": Transient,
    "54": InvalidCall,  # larger than an index or a row may be
    "55": Transient,  # a lock
    "57": Transient,  # a time limit, a shutdown
    "58": Transient,
    "P0": PreconditionFailed,  # a trigger of the operator's
    # SQLite: the name of its result, or the beginning of it.
    "SQLITE_AUTH": ConnectorBug,
    "SQLITE_BUSY": Transient,
    "SQLITE_CANTOPEN": Transient,
    "SQLITE_CONSTRAINT": PreconditionFailed,
    "SQLITE_CONSTRAINT_CHECK": InvalidCall,
    "SQLITE_CONSTRAINT_DATATYPE": InvalidCall,
    "SQLITE_CONSTRAINT_NOTNULL": InvalidCall,
    "SQLITE_CORRUPT": PreconditionFailed,
    "SQLITE_ERROR": ConnectorBug,
    "SQLITE_FULL": Transient,
    "SQLITE_INTERRUPT": Transient,
    "SQLITE_IOERR": Transient,
    "SQLITE_LOCKED": Transient,
    "SQLITE_MISMATCH": InvalidCall,
    "SQLITE_NOMEM": Transient,
    "SQLITE_NOTADB": PreconditionFailed,
    "SQLITE_PERM": PermissionDenied,
    "SQLITE_PROTOCOL": Transient,
    "SQLITE_READONLY": PermissionDenied,
    "SQLITE_SCHEMA": Transient,
    "SQLITE_TOOBIG": InvalidCall,
}
"""The error to raise where nothing happened, by the longest beginning of a code. The rest is a `ConnectorBug`."""

REFUSED_COMMITS: Final = (
    *("22", "23", "25", "40001", "40002", "40P01", "42", "44", "53", "54", "55", "57014", "P0"),
    *("SQLITE_BUSY", "SQLITE_CONSTRAINT"),
)
"""Beginnings of codes with which a database answers a COMMIT that it did not make: deferred constraints, deadlocks.

Not 40003 and 08007, which say that the outcome is open, and not SQLITE_FULL and SQLITE_IOERR, after which the file may
have the change. They count only as an answer: the same code at the end of a session (57P01) proves nothing.
"""

UNIQUE: Final = ("23505", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID")
"""There is a row with this key."""


def nothing_happened(fault: SqlFault) -> ConnectorError:
    """The error for a fault before the COMMIT, or of a read."""
    found = [code for code in MEANINGS if fault.code.startswith(code)]
    return MEANINGS[max(found, key=len)](str(fault)) if found else ConnectorBug(str(fault))


def after_commit(fault: SqlFault) -> ConnectorError | Uncertain:
    """The error for a fault of the COMMIT itself."""
    if fault.is_answer and fault.code.startswith(REFUSED_COMMITS):
        return nothing_happened(fault)
    return Uncertain(f"the outcome of the COMMIT is not known: {fault}")
