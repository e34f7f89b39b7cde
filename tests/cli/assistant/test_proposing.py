"""Proposals of an assistant: held for a person, refused with the reason, and found again after a SIGKILL."""

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client

import keep_actors
from keep_actors import Grant, Keep, PermissionsNeeded
from keep_actors.control.place import place_of
from keep_storage import limits, proposal_reads
from keep_storage.ids import Ids, wall_clock
from tests.cli.assistant.office import BETTER, OLD, WIDER, answer, client_of, over_stdio, refused
from tests.cli.operating import Shell
from tests.runtime.fakes import Fake
from tests.runtime.world import by_hand, left_in, script

pytestmark = pytest.mark.anyio

FOR_FLOW = {"workflow": "flow", "made_from": "1.0"}
NEW = OLD.replace('"flow"', '"letters"')


def runtime(db: Path, **more: Any) -> Any:
    return keep_actors.open(db, **{"connectors": [Fake()], "control": True, "sandbox": "thread", **more})


async def waiting(keep: Keep) -> list[str]:
    return [each.about or "" for each in await keep.attention() if each.kind == "proposal"]


# Held.


async def test_a_proposal_waits_for_a_person_and_nothing_runs(db: Path) -> None:
    async with runtime(db) as keep, client_of(db) as client:
        before = await keep.versions("flow")
        made = await answer(client, "propose_script", source=BETTER, note="louder", **FOR_FLOW)
        assert (made["is_held"], made["problems"], made["new_permissions"]) == (True, [], [])
        proposal = made["proposal"]["proposal_id"]
        assert made["for_the_person"].endswith(proposal)
        assert await waiting(keep) == [proposal]
        assert await keep.versions("flow") == before
        [listed] = (await answer(client, "list_proposals"))["proposals"]
        assert (listed["status"], listed["note"]["untrusted"]) == ("open", "louder")


async def test_a_proposal_for_a_new_workflow_makes_none(db: Path) -> None:
    async with runtime(db) as keep, client_of(db) as client:
        made = await answer(client, "propose_script", source=NEW)
        assert (made["is_held"], made["new_permissions"]) == (True, ["fake.add"])
        assert [each.name for each in await keep.workflows()] == ["flow", "lost", "job"]


async def test_without_a_runtime_it_is_in_the_file_for_the_next_one(db: Path) -> None:
    async with client_of(db) as client:
        made = await answer(client, "propose_script", source=BETTER, **FOR_FLOW)
    async with runtime(db) as keep:
        assert await waiting(keep) == [made["proposal"]["proposal_id"]]
        deployed = await keep.accept_proposal(made["proposal"]["proposal_id"], grants="declared", by="ann")
        assert deployed.version == "2.0"
        assert (await keep.versions("flow"))[0].author == "assistant"


async def test_several_proposals_at_once_are_all_written(db: Path) -> None:
    async with client_of(db) as client:

        async def ask(number: int) -> None:
            assert (await answer(client, "propose_script", source=OLD.replace('"flow"', f'"new {number}"')))["is_held"]

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(ask, number)
        assert len((await answer(client, "list_proposals"))["proposals"]) == 6


async def test_a_runtime_that_cannot_be_reached_is_an_error_and_nothing_is_written(db: Path) -> None:
    async with runtime(db, control=False) as keep, client_of(db) as client:
        assert "cannot be reached" in await refused(client, "propose_script", source=BETTER, **FOR_FLOW)
        assert await keep.proposals() == []


async def test_a_later_proposal_takes_the_place_of_an_open_one(db: Path) -> None:
    async with client_of(db) as client:
        await answer(client, "propose_script", source=BETTER, **FOR_FLOW)
        await answer(client, "propose_script", source=WIDER, **FOR_FLOW)
        listed = (await answer(client, "list_proposals"))["proposals"]
        assert [each["status"] for each in listed] == ["open", "replaced"]
        older = (await answer(client, "list_proposals", before=listed[0]["proposal_id"]))["proposals"]
        assert older == listed[1:]


async def test_what_became_of_it_can_be_read_with_the_reason_of_the_person(db: Path) -> None:
    async with runtime(db) as keep, client_of(db) as client:
        made = await answer(client, "propose_script", source=BETTER, **FOR_FLOW)
        await keep.reject_proposal(made["proposal"]["proposal_id"], by="ann", why="it drops the amount\x1b[2J")
        [listed] = (await answer(client, "list_proposals"))["proposals"]
        assert (listed["status"], listed["decided_by"]) == ("rejected", "ann")
        assert listed["reason"] == "it drops the amount\\x1b[2J"
        words = await refused(client, "propose_script", source=BETTER, **FOR_FLOW)
        assert "A person has rejected this very script" in words
        assert "it drops the amount" in words
        assert (await answer(client, "propose_script", source=WIDER, **FOR_FLOW))["is_held"]


# It widens nothing.


async def test_a_proposal_cannot_widen_permissions_by_itself(db: Path) -> None:
    async with runtime(db) as keep, client_of(db) as client:
        made = await answer(client, "propose_script", source=WIDER, **FOR_FLOW)
        assert made["new_permissions"] == ["fake.put"]
        proposal = made["proposal"]["proposal_id"]
        for grants in ([], ["fake.add"]):
            with pytest.raises(PermissionsNeeded) as refusal:
                await keep.accept_proposal(proposal, grants=grants, by="ann")
            assert [each.permission for each in refusal.value.needed] == ["fake.put"]
        assert {each.permission for each in await keep.grants("flow")} == {"fake.add", "fake.search"}
        await keep.accept_proposal(proposal, grants=[Grant("fake.put", policy="ask")], by="ann")
        assert {(each.permission, str(each.policy)) for each in await keep.grants("flow")} == {("fake.put", "ask")}


# Refused.


async def test_a_script_with_problems_is_not_proposed(db: Path) -> None:
    async with client_of(db) as client:
        made = await answer(client, "propose_script", source=OLD.replace("fake.add", "fake.addd"), **FOR_FLOW)
        assert (made["is_held"], made["proposal"]) == (False, None)
        assert [each["code"] for each in made["problems"]] == ["method-unknown"]
        assert (await answer(client, "list_proposals"))["proposals"] == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"source": BETTER}, "There is already a workflow of this name"),
    ({"source": BETTER, "workflow": "flow"}, "Say from which version it was made"),
    ({"source": BETTER, "workflow": "flow", "made_from": "0.9"}, "has no version 0.9"),
    ({"source": BETTER, "workflow": "flow", "made_from": "first"}, "is not a version"),
    ({"source": BETTER, "workflow": "job", "made_from": "1.0"}, "another name than workflow"),
    ({"source": BETTER, "workflow": "nope", "made_from": "1.0"}, "There is no workflow"),
    ({"source": OLD, **FOR_FLOW}, "runs already"),
    ({"source": BETTER + " " * limits.PROPOSAL_SOURCE_CHARS_MAX, **FOR_FLOW}, "length <="),
    ({"source": BETTER, "note": "x" * 4_001, **FOR_FLOW}, "length <= 4000"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED, ids=[words for _, words in REFUSED])
async def test_what_cannot_be_proposed_is_refused_with_the_reason(
    db: Path, arguments: dict[str, Any], words: str
) -> None:
    async with client_of(db) as client:
        assert words in await refused(client, "propose_script", **arguments)
        assert (await answer(client, "list_proposals"))["proposals"] == []


async def test_a_script_made_from_a_version_that_does_not_run_any_more_is_refused(db: Path) -> None:
    async with runtime(db) as keep, client_of(db) as client:
        await keep.deploy(BETTER, workflow="flow", grants="declared")
        words = await refused(client, "propose_script", source=WIDER, **FOR_FLOW)
        assert "made from another version than the one that runs (1.1)" in words
        made = await answer(client, "propose_script", source=WIDER, workflow="flow", made_from="1.1")
        assert made["is_held"]


async def test_an_archived_workflow_takes_no_proposal(db: Path) -> None:
    async with runtime(db) as keep, client_of(db) as client:
        await keep.archive("flow", by="ann")
        assert "is archived" in await refused(client, "propose_script", source=BETTER, **FOR_FLOW)


async def test_no_more_are_open_than_a_person_can_read(db: Path) -> None:
    ids = Ids(wall_clock)
    with by_hand(db) as model:
        for number in range(limits.PROPOSALS_OPEN_MAX):
            model.propose_script(ids.new("prp"), f"new {number}", "x", "assistant", "", None, None)
    async with client_of(db) as client:
        assert "wait for a person already" in await refused(client, "propose_script", source=BETTER, **FOR_FLOW)


async def test_no_more_are_made_in_a_day_than_a_person_wants(db: Path) -> None:
    ids = Ids(wall_clock)
    with by_hand(db) as model:
        for number in range(limits.PROPOSALS_A_DAY_MAX):
            model.propose_script(ids.new("prp"), "new", f"x {number}", "assistant", "", None, None)
    async with client_of(db) as client:
        assert "in 24 hours" in await refused(client, "propose_script", source=BETTER, **FOR_FLOW)
        assert len((await answer(client, "list_proposals", limit=100))["proposals"]) == 100


# SIGKILL.


async def test_a_proposal_survives_the_death_of_its_server(db: Path, tmp_path: Path) -> None:
    """The server dies after it has proposed: another one lists the proposal, and a person accepts it."""
    wrapper = tmp_path / "keep"
    await anyio.Path(wrapper).write_text(f'#!/bin/sh\necho $$ > "{tmp_path}/pid"\nexec {over_stdio(db).command} "$@"\n')
    await anyio.Path(wrapper).chmod(0o755)
    with suppress(BaseExceptionGroup, anyio.ClosedResourceError):
        async with Client(over_stdio(db, command=wrapper)) as client:
            made = await answer(client, "propose_script", source=BETTER, **FOR_FLOW)
            os.kill(int(await anyio.Path(tmp_path / "pid").read_text()), signal.SIGKILL)
    async with Client(over_stdio(db)) as client:
        [listed] = (await answer(client, "list_proposals"))["proposals"]
    assert (listed["proposal_id"], listed["status"]) == (made["proposal"]["proposal_id"], "open")
    async with runtime(db) as keep:
        assert (await keep.accept_proposal(listed["proposal_id"], grants="declared", by="ann")).version == "2.0"


@contextmanager
def between(db: Path, happens: Callable[[socket.socket, bytes], None]) -> Iterator[Path]:
    """A socket between a client and the runtime: `happens` gets the runtime's end, and the request."""
    place = db.with_name("between")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()

        def pass_on() -> None:
            with suppress(OSError):
                client, _ = listener.accept()
                with client, socket.socket(socket.AF_UNIX) as runtime:
                    runtime.connect(str(place_of(db)))
                    happens(runtime, client.makefile("rb").readline())

        thread = threading.Thread(target=pass_on, daemon=True)
        thread.start()
        yield place
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize("when", ["after the commit", "before the request"])
async def test_a_runtime_that_dies_before_it_answers_leaves_no_doubt(tmp_path: Path, when: str) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "flow.js").write_text(script(prepare="return { reservations: [] };"), "utf-8")
    changed = script(prepare='console.log("x"); return { reservations: [] };')
    running = shell.running("flow.js", more=("--sandbox", "thread"))
    async with AsyncExitStack() as stack:
        process = stack.enter_context(running)

        def kill(runtime: socket.socket, request: bytes) -> None:
            if when == "after the commit":
                runtime.sendall(request)
                assert b'"answer"' in runtime.makefile("rb").readline()
            process.kill()
            process.wait()

        place = stack.enter_context(between(shell.db, kill))
        client = await stack.enter_async_context(client_of(shell.db, control=place))
        ask = partial(client.call_tool, "propose_script", {"source": changed, **FOR_FLOW})
        result = await ask()
        with left_in(shell.db) as q:
            found = [each.id for each in proposal_reads.proposals(q)]
        if when == "after the commit":
            assert result.structured_content is not None
            assert [result.structured_content["proposal"]["proposal_id"]] == found
        else:
            assert result.is_error
            assert "not there now: see list_proposals" in json.dumps([each.model_dump() for each in result.content])
            assert found == []
