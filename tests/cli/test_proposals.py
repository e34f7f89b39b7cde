"""The commands for proposed scripts: shown whole, accepted with grants, rejected with a reason."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

import keep_actors
from keep_actors import Grant, Keep
from keep_actors.cli.exit_codes import Exit
from keep_storage.ids import Ids, wall_clock
from tests.cli.at_work import Desk, Shop
from tests.cli.operating import Shell, script

pytestmark = pytest.mark.anyio

OURS = script("orders")
LOUD = OURS.replace("order: prepared.data", "order: prepared.data + '!'")
REFUNDS = OURS.replace(
    "await ctx.shop.ship({ order: prepared.data });",
    "if (prepared.data === 'x') { await ctx.shop.refund({ order: 'x' }); return; }\n"
    "        await ctx.shop.ship({ order: prepared.data });",
)
CONNECTORS = ("--connectors", "tests.cli.at_work:Shop", "--sandbox", "thread")


async def propose(keep: Keep, source: str, note: str = "louder") -> str:
    workflow = await keep.workflow("orders")
    made = await keep.propose(
        proposal_id=Ids(wall_clock).new("prp"),
        name="orders",
        source=source,
        workflow_id=workflow.id,
        base_version_id=workflow.active_version_id,
        by="ann's assistant",
        note=note,
    )
    return made.id


@asynccontextmanager
async def opened(db: Path) -> AsyncIterator[Keep]:
    async with keep_actors.open(db, connectors=[Shop()], sandbox="thread", control=True) as keep:
        await keep.deploy(OURS, grants=[Grant("shop.ship", policy="ask", per_day=9)], start=False)
        yield keep


async def typed(desk: Desk, *words: str, code: Exit = Exit.OK) -> str:
    done = await anyio.to_thread.run_sync(partial(desk.run, *words, code=code))
    return f"{done.stdout}{done.stderr}"


# Looking.


async def test_a_proposal_is_shown_whole_with_the_permissions_that_are_new(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    async with opened(desk.db) as keep:
        proposal = await propose(keep, REFUNDS, "refunds too")
        said = await typed(desk, "proposals", proposal[:-4])
    assert "proposed by        ann's assistant" in said
    assert "who proposes says  refunds too" in said
    assert "shop.money  NEW: risk medium, changes the outside, ctx.shop.refund" in said
    assert 'shop.ship  granted already (ask {"per_day":9}): risk medium, changes the outside, ctx.shop.ship' in said
    assert "+        if (prepared.data === 'x') { await ctx.shop.refund({ order: 'x' }); return; }" in said
    assert f"keep accept-proposal --db {desk.db} {proposal} --accept" in said
    assert f"keep reject-proposal --db {desk.db} {proposal} --why TEXT" in said


async def test_what_waits_is_in_attention_and_in_status(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    async with opened(desk.db) as keep:
        proposal = await propose(keep, LOUD)
        said = await typed(desk, "attention", code=Exit.WAITING)
        assert "orders: proposal" in said
        assert "ann's assistant proposes another script: louder" in said
        assert f"keep proposals --db {desk.db} {proposal}" in said
        assert "accept-proposal" not in said, "only what was shown whole is accepted"
        assert f"1 proposed script waits for a person: keep proposals --db {desk.db}" in await typed(desk, "status")
        assert "waits for a person (proposal)" in await typed(desk, "status", "orders")
        await typed(desk, "reject-proposal", proposal, "--why", "no")
        assert "Nothing waits for a person." in await typed(desk, "attention")
        assert "proposed script" not in await typed(desk, "status")


async def test_the_list_says_what_became_of_each(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    async with opened(desk.db) as keep:
        first = await propose(keep, LOUD)
        await keep.reject_proposal(first, by="bob", why="too loud")
        second = await propose(keep, REFUNDS)
        _, *rows = (await typed(desk, "proposals")).splitlines()
        assert [row.split()[0] for row in rows] == [second, first]
        assert "rejected: too loud" in rows[1]
        [only] = (await typed(desk, "proposals", "--before", second)).splitlines()[1:]
        assert only == rows[1]
        objects = await anyio.to_thread.run_sync(desk.objects, "proposals")
        assert [each["status"] for each in objects] == ["open", "rejected"]
        [shown] = await anyio.to_thread.run_sync(desk.objects, "proposals", second)
        assert shown["diff"].startswith(f"--- 1.0\n+++ {second}\n@@ ")
        assert [each["granted"] is None for each in shown["needs"]] == [True, False]


async def test_hidden_characters_and_long_lines_of_a_proposal_are_shown(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    hidden = f"// fine\u202e\u2028// {'.' * 5_000} the end\x85if (!approved) return;\n{OURS}"
    async with opened(desk.db) as keep:
        said = await typed(desk, "proposals", await propose(keep, hidden, "\x1b[2Jfine"))
    [line] = [each for each in said.splitlines() if "the end" in each]
    assert line.startswith("+// fine\\u{202e}\\u{2028}// ...")
    assert line.endswith("... the end\\x85if (!approved) return;")
    assert "\\x1b[2Jfine" in said


async def test_without_a_runtime_the_connectors_have_to_be_named(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    async with opened(desk.db) as keep:
        proposal = await propose(keep, REFUNDS)
    alone = await typed(desk, "proposals", proposal)
    assert "The permissions that it needs are not known" in alone
    assert "accept-proposal" not in alone
    named = await typed(desk, "proposals", proposal, *CONNECTORS)
    assert "shop.money  NEW" in named
    assert "accept-proposal" in named


async def test_what_cannot_be_accepted_says_so_and_shows_no_command_for_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    async with opened(desk.db) as keep:
        outdated = await propose(keep, LOUD)
        await keep.deploy(REFUNDS, workflow="orders", grants="declared")
        said = await typed(desk, "proposals", outdated)
        assert "It cannot be accepted: another script runs" in said
        assert "accept-proposal" not in said
        broken = await propose(keep, LOUD.replace("shop.ship", "shop.shipp"))
        said = await typed(desk, "proposals", broken)
        assert "It cannot be deployed: " in said
        assert "`ctx.shop.shipp` does not exist here" in said
        assert "accept-proposal" not in said


# Deciding.


async def test_accepting_gives_what_was_granted_and_no_more(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    async with opened(desk.db) as keep:
        proposal = await propose(keep, REFUNDS)
        refused = await typed(desk, "accept-proposal", proposal, code=Exit.WRONG)
        assert "shop.money (risk medium" in refused
        assert "Accept them all with --accept, or one by one with --grant NAME." in refused
        grants = ("--grant", "shop.ship", "--ask", "shop.money")
        said = await typed(desk, "accept-proposal", proposal, *grants, "--by", "bob")
        assert said == f"orders runs version 2.0: {proposal} is accepted.\n"
        given = {each.permission: (str(each.policy), each.granted_by) for each in await keep.grants("orders")}
        assert given == {"shop.ship": ("allow", "bob"), "shop.money": ("ask", "bob")}


async def test_accepting_all_keeps_the_limits_that_were_there(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    async with opened(desk.db) as keep:
        await typed(desk, "accept-proposal", await propose(keep, LOUD), "--accept")
        [grant] = await keep.grants("orders")
        assert (str(grant.policy), grant.limits) == ("ask", '{"per_day":9}')


async def test_accepting_needs_a_runtime_and_rejecting_does_not(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    async with opened(desk.db) as keep:
        proposal = await propose(keep, LOUD)
    assert "No runtime is running" in await typed(desk, "accept-proposal", proposal, code=Exit.NO_RUNTIME)
    said = await typed(desk, "reject-proposal", proposal, "--why", "too loud")
    assert f"{proposal} is rejected. ann's assistant can read the reason." in said
    assert "already rejected" in await typed(desk, "reject-proposal", proposal, "--why", "x", code=Exit.WRONG)


async def test_a_rejection_needs_a_reason(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    async with opened(desk.db) as keep:
        proposal = await propose(keep, LOUD)
        assert "--why" in await typed(desk, "reject-proposal", proposal, code=Exit.USAGE)
        assert "There is no proposal 'prp_x'" in await typed(
            desk, "reject-proposal", "prp_x", "--why", "x", code=Exit.WRONG
        )


@pytest.mark.parametrize(("reply", "code", "versions"), [("n", Exit.WRONG, 1), ("y", Exit.OK, 2)])
async def test_on_a_terminal_it_is_shown_before_the_question(
    tmp_path: Path, reply: str, code: Exit, versions: int
) -> None:
    desk = Desk(tmp_path / "keep.db")
    async with opened(desk.db) as keep:
        proposal = await propose(keep, LOUD)
        type_it = partial(desk.type, reply, "accept-proposal", proposal, "--accept")
        done: subprocess.CompletedProcess[str] = await anyio.to_thread.run_sync(type_it)
        assert done.returncode == code, done.stderr
        assert done.stderr.index("prepared.data + '!'") < done.stderr.index("Accept it?")
        assert len(await keep.versions("orders")) == versions


# Proposing from a shell.


async def test_a_script_is_proposed_from_a_shell_and_replaces_nothing(tmp_path: Path) -> None:
    desk, file = Desk(tmp_path / "keep.db"), tmp_path / "loud.js"
    await anyio.Path(file).write_text(LOUD, "utf-8")
    async with opened(desk.db) as keep:
        alone = await typed(desk, "propose", str(file), *CONNECTORS, code=Exit.WRONG)
        assert "There is already a workflow of this name" in alone
        said = await typed(desk, "propose", str(file), "--workflow", "orders", "--note", "louder", *CONNECTORS)
        [proposal] = await keep.proposals()
        assert f"{proposal.id} waits for a person: keep proposals --db {desk.db} {proposal.id}" in said
        assert len(await keep.versions("orders")) == 1
    await anyio.Path(file).write_text(REFUNDS, "utf-8")
    said = await typed(desk, "propose", str(file), "--workflow", "orders", "--from", "1.0", *CONNECTORS)
    assert "No runtime is running: this was written into" in said


async def test_a_script_with_problems_is_not_proposed(tmp_path: Path) -> None:
    desk, file = Desk(tmp_path / "keep.db"), tmp_path / "bad.js"
    await anyio.Path(file).write_text(LOUD.replace("shop.ship", "shop.shipp"), "utf-8")
    async with opened(desk.db) as keep:
        said = await typed(desk, "propose", str(file), "--workflow", "orders", *CONNECTORS, code=Exit.WRONG)
        assert "method-unknown" in said
        assert "was not proposed" in said
        assert await keep.proposals() == []


async def test_a_name_that_would_deceive_is_refused(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write("orders")
    async with opened(shell.db):
        pass
    for words, why in (
        (("propose", "orders.js", "--by", "ann\u202e"), "--by 'ann\\u202e' has an invisible character (U+202E)."),
        (("mcp", "--name", "ann\x1b[2J"), "--name 'ann\\x1b[2J' has an invisible character (U+001B)."),
        (("mcp", "--name", ""), "--name '' is empty."),
    ):
        said = await anyio.to_thread.run_sync(partial(shell.refused, *words, code=Exit.USAGE))
        assert why in said, said
