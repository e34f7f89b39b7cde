"""A file whose every text is an attack on the terminal of who looks at it, and what no command may let through."""

import unicodedata
from pathlib import Path
from typing import Final

import anyio
import apsw

import keep_actors
from keep_actors import Connector, Grant, mutation
from keep_storage.ids import Ids, wall_clock
from tests.cli.at_work import order
from tests.cli.operating import script

FORGED: Final = "FORGED a line of its own"
HOSTILE: Final = (
    "\x1b[2J\x1b]0;owned\x07\u202eevil\x9b31m\x85\x7f\r\t\u3164\u2800\ufe0f\U000e0041\U000e0100\u2066\u200b\xad\u180e"
    f"\u2028\u2029\u00a0\ufeff\uffa0\n{FORGED}"
)
AS_JSON: Final = '["\\u001b[2J\x9b31m\x85\u202e\u3164\ufe0f\U000e0041\u200b\\n' + FORGED + '"]'
"""The same as a value: JSON lets everything from U+0080 on stand for itself."""

_BLANK: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {
    chr(each) for each in range(0xFE00, 0xFE10)
}
_OBEYED: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def reached(text: str) -> list[str]:
    """What a terminal would obey or hide, and lines that a text has forged. Does not ask the code that it is about."""
    found = [f"U+{ord(each):04X}" for each in text if each != "\n" and _is_bad(each)]
    return found + [line for line in text.split("\n") if line.startswith(FORGED)]


def _is_bad(character: str) -> bool:
    kind = unicodedata.category(character)
    is_selector = 0xE0000 <= ord(character) <= 0xE0FFF
    return kind in _OBEYED or (kind == "Zs" and character != " ") or character in _BLANK or is_selector


class Shop(Connector):
    name = "shop"

    @mutation(identity=["order"])
    async def ship(self, order: str) -> str:
        if order.startswith("lost"):
            raise ConnectionError("the line went dead")
        return order


JOB: Final = """
export default Keep.workflow({
  name: "job",
  jobs: {
    send: {
      schedule: { interval: "1d" },
      async handler(ctx) {
        console.log("a line");
        await ctx.withItem("i1", "One", async (ctx) => { await ctx.shop.ship({ order: "i1" }); });
        await ctx.withItem("i2", "Two", async () => { throw new Error("no"); });
      },
    },
  },
});
"""

_TEXTS: Final = {
    "workflows": ["name", "timezone", "error"],
    "script_versions": ["source"],
    "handlers": ["name"],
    "topics": ["name"],
    "runs": ["handler", "title", "error_message", "error_place"],
    "events": ["message_id", "title"],
    "items": ["item_id", "title", "error"],
    "mutations": ["connector", "method", "title", "error", "resolved_who", "resolved_why", "item_id"],
    "item_runs": ["item_id"],
    "approvals": ["decided_by", "reason"],
    "grants": ["permission", "granted_by", "limits"],
    "maintenance_tasks": ["problem"],
    "proposals": ["name", "source", "note", "proposed_by"],
    "journal": ["why"],
}
_VALUES: Final = {"runs": ["logs"], "events": ["payload"], "mutations": ["params", "result"]}


def craft(db: Path) -> dict[str, str]:
    """Make the file. Returns an id of everything that can be named."""
    anyio.run(_fill, db)
    connection = apsw.Connection(str(db))
    trigger = "journal_is_never_updated"
    [[guard]] = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", [trigger]).fetchall()
    connection.execute(f"PRAGMA foreign_keys = OFF; DROP TRIGGER {trigger}")
    [[version]] = connection.execute("SELECT active_version_id FROM workflows WHERE name = 'lost'").fetchall()
    [[run]] = connection.execute("SELECT id FROM runs WHERE status = 'paused:reconciliation'").fetchall()
    connection.execute(
        "INSERT INTO maintenance_tasks"
        " (id, workflow_id, run_id, status, evidence, held_version_id, problem, created_at)"
        " SELECT 'mnt_1', workflow_id, id, 'open', '{}', ?, 'It is repaired', 1 FROM runs WHERE id = ?",
        (version, run),
    )
    for table, columns in _TEXTS.items():
        for column in columns:
            kept = "AND error_class IS NOT NULL" if (table, column) == ("workflows", "error") else ""
            connection.execute(
                f"UPDATE {table} SET {column} = {column} || ? WHERE {column} IS NOT NULL {kept}", [HOSTILE]
            )
    for table, columns in _VALUES.items():
        for column in columns:
            value = f'{{"order":"x","{FORGED}":{AS_JSON}}}' if column == "params" else AS_JSON
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} IS NOT NULL", [value])
    operations = "number IN (SELECT operation FROM journal)"
    connection.execute(f"UPDATE names SET name = name || ? WHERE {operations}", [HOSTILE])
    connection.execute("UPDATE journal SET changed = ?", [f'{{"words":{AS_JSON},"{FORGED}":"x"}}'])
    found = {
        "workflow": "SELECT id FROM workflows WHERE name LIKE 'asks%'",
        "lost": "SELECT id FROM workflows WHERE name LIKE 'lost%'",
        "job": "SELECT id FROM workflows WHERE name LIKE 'job%'",
        "item": "SELECT item_id FROM items WHERE item_id LIKE 'i2%'",
        "approval": "SELECT id FROM approvals",
        "unknown": "SELECT id FROM mutations WHERE status = 'indeterminate'",
        "event": "SELECT id FROM events ORDER BY seq",
        "proposal": "SELECT id FROM proposals",
        "run": "SELECT id FROM runs WHERE status = 'paused:reconciliation'",
    }
    connection.execute(str(guard))
    ids = {name: str(connection.execute(query).fetchall()[0][0]) for name, query in found.items()}
    connection.close()
    return ids


async def _fill(db: Path) -> None:
    async with keep_actors.open(db, connectors=[Shop()], sandbox="thread", grants="all") as keep:
        await keep.deploy(script("asks"), grants=[Grant("shop.ship", policy="ask")])
        await order(keep, "asks", "a", "b")
        await keep.deploy(script("lost"))
        await order(keep, "lost", "lost1")
        await keep.deploy(JOB)
        await keep.propose(proposal_id=Ids(wall_clock).new("prp"), name="new", source=script("new"), by="ann", note="x")
        await keep.wait_idle()
