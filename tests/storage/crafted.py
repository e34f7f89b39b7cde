"""Files that somebody made to hurt whoever looks into them. Each is made from a healthy one with some history."""

import os
import re
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import apsw

from keep_storage import Store
from tests.storage.world import World


def healthy(path: Path) -> Path:
    """A file with runs, events, calls, an approval's worth of history, and no log beside it."""
    with Store.open(path) as store:
        world = World(store)
        world.publish("m1", "m2")
        world.model.commit_consumer(world.emitting("m1").id)
        world.uncertain("m2")
    return path


def altered(path: Path, *statements: str) -> None:
    """Anything that SQL can do to a file, with nothing in the way."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.pragma("ignore_check_constraints", True)
        connection.pragma("foreign_keys", False)
        for statement in statements:
            connection.execute(statement)


def disguised(path: Path, table: str, *statements: str) -> None:
    """Change rows of a table as if it had no rules, and give it its own schema back: from outside nobody sees it."""
    set_to = "UPDATE sqlite_schema SET sql = '{}' WHERE type = 'table' AND name = '{}'"
    with closing(apsw.Connection(str(path))) as connection:
        [(strict,)] = connection.execute("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,))
    # Also without types: in a text column a number would become a text.
    loose = re.sub(
        r"^( +\w+ +)(TEXT|INTEGER|REAL|BLOB)\b(?! +(NOT NULL )?PRIMARY KEY)( +NOT NULL)?",
        r"\1",
        str(strict),
        flags=re.M,
    )
    loose = re.sub(r"STRICT(, )?(WITHOUT ROWID)?$", r"\2", loose)
    altered(path, set_to.format(loose.replace("'", "''"), table))
    altered(path, *statements)
    altered(path, set_to.format(str(strict).replace("'", "''"), table))


def _page_size(content: bytes | bytearray) -> int:
    [size] = struct.unpack(">H", content[16:18])
    return 65536 if size == 1 else int(size)


def _root(path: Path, table: str) -> int:
    with closing(apsw.Connection(str(path))) as connection:
        [(root,)] = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
        return int(str(root))


def a_tree_that_holds_one_page_many_times(path: Path) -> None:
    """A table's tree of pages, six levels deep, in which every page names the next one four hundred times."""
    root = _root(path, "workflows")
    content = bytearray(path.read_bytes())
    size = _page_size(content)
    leaf_content = content[(root - 1) * size : root * size]
    pages = len(content) // size
    levels = 6
    for level in range(levels):
        page = bytearray(size)
        child = pages + level + 2
        cells = (size - 12) // 2 // 4
        page[0] = 0x05
        struct.pack_into(">HHHB", page, 1, 0, cells, size - 5 * cells, 0)
        struct.pack_into(">I", page, 8, child)
        for cell in range(cells):
            at = size - 5 * (cell + 1)
            struct.pack_into(">H", page, 12 + 2 * cell, at)
            struct.pack_into(">IB", page, at, child, 1)
        if level == 0:
            content[(root - 1) * size : root * size] = page
        content += page
    content += leaf_content
    struct.pack_into(">I", content, 28, len(content) // size)
    path.write_bytes(content)


def a_size_that_is_a_lie(path: Path) -> None:
    content = bytearray(path.read_bytes())
    struct.pack_into(">I", content, 28, 2**31)
    path.write_bytes(content)


def a_hole(path: Path, size: int) -> None:
    """Pages that nobody has written, and that take no room on the disk."""
    content = bytearray(path.read_bytes())
    struct.pack_into(">I", content, 28, size // _page_size(content))
    path.write_bytes(content)
    os.truncate(path, size)


def a_page_of_noise(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 8192] = b"\xff" * 8192
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def written(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def sql(*statements: str) -> Callable[[Path], None]:
    def alter(path: Path) -> None:
        altered(path, *statements)

    return alter


FOR_EVER: Final = "WITH RECURSIVE forever(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM forever)"

CRAFTED: Final[dict[str, Callable[[Path], None]]] = {
    "nothing": written(b""),
    "no database": written(b"not a database at all " * 300),
    "a header alone": written(b"SQLite format 3\x00" + b"\x10\x00\x02\x02\x00\x40\x20\x20" + b"\xff" * 76),
    "zeros": written(bytes(65536)),
    "cut off": cut,
    "a page of noise": a_page_of_noise,
    "a size that is a lie": a_size_that_is_a_lie,
    "a tree that holds one page many times": a_tree_that_holds_one_page_many_times,
    "a view in place of a table that never ends": sql(
        "DROP TABLE workflows", f"CREATE VIEW workflows AS {FOR_EVER} SELECT n AS id, n AS name FROM forever"
    ),
    "views that are defined by each other": sql(
        "CREATE VIEW a AS SELECT 1 AS x",
        "DROP TABLE workflows",
        "CREATE VIEW workflows AS SELECT * FROM a",
        "UPDATE sqlite_schema SET sql = 'CREATE VIEW a AS SELECT * FROM workflows' WHERE name = 'a'",
    ),
    "a view beside the tables": sql(f"CREATE VIEW more AS {FOR_EVER} SELECT n FROM forever"),
    "a trigger": sql("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM grants; END"),
    "a trigger that is not there": sql("DROP TRIGGER journal_is_never_updated"),
    "a table more": sql('CREATE TABLE "\x1b[2J\u202e" (x)'),
    "a table less": sql("PRAGMA foreign_keys = OFF", "DROP TABLE deliveries"),
    "a column more": sql("ALTER TABLE workflows ADD COLUMN evil TEXT"),
    "a column that is computed": sql("ALTER TABLE workflows ADD COLUMN evil TEXT AS (name || name) VIRTUAL"),
    "a table without its rules": sql(
        "UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE type = 'table' AND name = 'workflows'"
    ),
    "a check that is gone": sql(
        "UPDATE sqlite_schema SET sql = replace(sql, '''producer'', ', '') WHERE type = 'table' AND name = 'handlers'"
    ),
    "an index more": sql("CREATE INDEX more ON workflows (upper(name))"),
    "an index over something else": sql(
        "UPDATE sqlite_schema SET sql = replace(sql, 'next_run_at', 'wake_at') WHERE name = 'handlers_due'"
    ),
    "a schema that cannot be read": sql("UPDATE sqlite_schema SET sql = 'CREATE TABLE (((' WHERE name = 'workflows'"),
    "a schema that is no text": sql("UPDATE sqlite_schema SET sql = x'00ff', type = 7 WHERE name = 'handlers_due'"),
    "a schema of a million characters": sql(
        f"CREATE TABLE large ({', '.join(f'column_{number} TEXT' for number in range(1_900))})",
        "UPDATE sqlite_schema SET sql = sql || '/*' || hex(zeroblob(500000)) || '*/' WHERE name = 'large'",
    ),
    "a table that is there twice": sql(
        "INSERT INTO sqlite_schema SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema WHERE name = 'grants'"
    ),
    "another application's": sql("PRAGMA application_id = 7"),
    "a version of the future": sql("PRAGMA user_version = 12"),
    "a version below nothing": sql("PRAGMA user_version = -1"),
    "an older version than its schema": sql("PRAGMA user_version = 1"),
    "no version": sql("PRAGMA user_version = 0"),
}
"""What was made of a healthy file, by how."""
