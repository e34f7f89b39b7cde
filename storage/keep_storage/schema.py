"""Compares the schema of a file with the one that the migrations make.

A trigger, a view or a generated column is code that runs when people look: a file that has one we did not write is not
read.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Final, NamedTuple

import apsw

from keep_storage import statements
from keep_storage.errors import StorageForeign, StorageTooNew

APPLICATION_ID: Final = 0x4B454550
"""`KEEP`, in the header of every file of ours."""

_TOKEN: Final = re.compile(r"""('(?:[^']|'')*')|"(\w+)"|--[^\n]*|/\*.*?\*/|\s+""", re.DOTALL)
_BLANKS: Final = re.compile(r" *([(),]| ) *")
_STATISTICS: Final = re.compile(r"CREATE TABLE sqlite_stat[14]\([\w,]+\)")
"""Left behind by `ANALYZE`. It changes plans and nothing else."""

_PARTS_MAX: Final = 10_000
"""Of a schema that are looked at. Ours has less than a hundred."""
SHOWN_MAX: Final = 10
_NAME_CHARS_MAX: Final = 80


class Part(NamedTuple):
    """A row of `sqlite_schema`. In a crafted file each of them can be anything."""

    kind: object
    name: object
    table: object
    sql: object


def schema_version(connection: apsw.Connection, path: str) -> int:
    """The version of the schema in a file; 0 in an empty one. Refuses files that are not ours, or too new."""
    application = connection.pragma("application_id")
    version = int(str(connection.pragma("user_version")))
    tables = connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchall()[0][0]
    if application != APPLICATION_ID and (application or version or tables):
        raise StorageForeign(f"{path}: a database, but not one of keep-actors. It was left as it is.")
    if version < 0:
        raise StorageForeign(f"{path}: schema version {version}, which no version of keep-actors writes.")
    newest = len(statements.migrations())
    if version > newest:
        raise StorageTooNew(
            f"{path}: schema version {version}, and this library knows versions up to {newest}. "
            "Use the version of keep-actors that wrote it, or a newer one."
        )
    return version


@cache
def _expected(version: int) -> tuple[Part, ...]:
    """The schema that the migrations make."""
    made = apsw.Connection(":memory:")
    for script in statements.migrations()[:version]:
        made.execute(script)
    parts = tuple(_parts(made))
    made.close()
    return parts


def _parts(connection: apsw.Connection) -> Iterator[Part]:
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name, type")
    return (Part(*row) for row in islice(rows, _PARTS_MAX))


def foreign_in(connection: apsw.Connection, version: int) -> list[str]:
    """Parts of the schema of a file that are not ours, or missing; empty if it is as we make it."""
    expected, found = _expected(version), tuple(_parts(connection))
    return [] if found == expected else differences(expected, found)


def another_schema(path: str, version: int, foreign: list[str]) -> StorageForeign:
    """The error that says so."""
    return StorageForeign(
        f"{path}: its schema is not that of version {version}: {'; '.join(foreign)}. Nothing else of it was read. "
        "Restore a backup, or remove what was added."
    )


def differences(expected: Iterable[Part], found: Iterable[Part]) -> list[str]:
    """Parts of the file that are not ours, and parts that are missing; empty if it is as we make it."""
    ours, theirs = Counter(map(_plain, expected)), Counter(_plain(each) for each in found if not _is_statistics(each))
    added, missing = list((theirs - ours).elements()), list((ours - theirs).elements())
    names = {each.name for each in missing}
    said = [
        f"{_shown(each)} is not as keep-actors makes it"
        if each.name in names
        else f"{_shown(each)} is none of keep-actors"
        for each in added
    ]
    there = {each.name for each in added}
    said += [f"{_shown(each)} is missing" for each in missing if each.name not in there]
    hidden = len(said) - SHOWN_MAX
    return said if hidden <= 0 else [*said[:SHOWN_MAX], f"and {hidden} more"]


def _plain(part: Part) -> Part:
    """Without comments, blanks and quotes, which say nothing; texts in it are kept to the letter."""
    return part if not isinstance(part.sql, str) else part._replace(sql=_normal(part.sql))


def _normal(sql: str) -> str:
    done: list[str] = []
    code, end = "", 0
    for token in _TOKEN.finditer(sql):
        text, name = token.groups()
        code += sql[end : token.start()] + ("" if text else name or " ")
        end = token.end()
        if text:
            done += [_BLANKS.sub(r"\1", code), text]
            code = ""
    return "".join([*done, _BLANKS.sub(r"\1", code + sql[end:])]).strip()


def _is_statistics(part: Part) -> bool:
    return isinstance(part.sql, str) and part.kind == "table" and _STATISTICS.fullmatch(part.sql) is not None


def _shown(part: Part) -> str:
    kind = part.kind if part.kind in ("table", "index", "trigger", "view") else "something"
    return f"{kind} {repr(part.name)[:_NAME_CHARS_MAX]}"
