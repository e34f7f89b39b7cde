"""Whose script it is. The name inside of one is its author's word: it replaces no workflow and uses no grants."""

from typing import Any

import anyio
import pytest

from keep_actors import DeployRefused, Grant, PermissionsNeeded, Policy, Rejected
from keep_sandbox.declaration import Code
from keep_storage.errors import Reason
from tests.runtime.fakes import Fake
from tests.runtime.world import TimedBox, script, world

pytestmark = pytest.mark.anyio

OURS = script(mutate="await ctx.fake.add({ text: prepared.data.id });")
THEIRS = script(mutate='await c.fake.add({ text: "for the attacker" });')
"""Bears the same name, and calls what it does not name, so that nothing is known of it at deploy."""
OPENLY = THEIRS.replace("c.fake", "ctx.fake")


async def refused(box: TimedBox, source: str, **options: Any) -> tuple[Code, str]:
    """Why a script is not deployed. Nothing has changed then."""
    before = [await box.keep.workflows(), *[await box.keep.versions(each.id) for each in await box.keep.workflows()]]
    with pytest.raises(DeployRefused) as refusal:
        await box.keep.deploy(source, **options)
    after = [await box.keep.workflows(), *[await box.keep.versions(each.id) for each in await box.keep.workflows()]]
    assert after == before
    [problem] = refusal.value.problems
    return problem.code, f"{problem.message}. {problem.hint}"


async def versions(box: TimedBox) -> list[tuple[str, str]]:
    """The number and the author of each version, oldest first."""
    return [(f"{each.major}.{each.minor}", each.author) for each in reversed(await box.keep.versions("flow"))]


async def test_a_script_with_the_name_of_a_workflow_does_not_replace_it() -> None:
    fake = Fake()
    async with world(fake, grants="explicit") as box:
        await box.keep.deploy(OURS, grants=["fake.add"])
        code, words = await refused(box, THEIRS)
        assert code is Code.NAME_TAKEN
        assert "already exists, with another script" in words
        assert "`workflow='flow'`" in words
        assert "`--workflow`" in words
        assert "rename the script" in words
        await box.publish("flow", "in", "one")
        await box.settle()
        assert fake.texts == ["one"]


async def test_nor_does_it_with_grants_or_as_a_new_major_version() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(OURS)
        assert (await refused(box, THEIRS, major=True))[0] is Code.NAME_TAKEN
        assert (await refused(box, OURS, major=True))[0] is Code.NAME_TAKEN
        assert (await refused(box, THEIRS, grants="all", new=False))[0] is Code.NAME_TAKEN


async def test_a_caller_who_names_the_workflow_replaces_its_script_and_the_grants_stay() -> None:
    fake = Fake()
    async with world(fake, grants="explicit") as box:
        first = await box.keep.deploy(OURS, grants=["fake.add"])
        for named, version in (("flow", "1.1"), (first.workflow_id, "1.2")):
            changed = OURS.replace("prepared.data.id", f'"{version}"')
            deployed = await box.keep.deploy(changed, workflow=named)
            assert (deployed.workflow_id, deployed.version) == (first.workflow_id, version)
        await box.publish("flow", "in", "one")
        await box.settle()
        assert fake.texts == ["1.2"]


async def test_the_script_that_runs_is_no_replacement_and_needs_no_name() -> None:
    async with world(Fake(), grants="explicit") as box:
        first = await box.keep.deploy(OURS, grants=["fake.add"], author="ann")
        for options in ({}, {"author": "ann"}, {"author": "bob"}, {"new": False}):
            assert await box.keep.deploy(OURS, **options) == first
        assert await versions(box) == [("1.0", "ann")]


async def test_a_script_that_people_took_back_does_not_come_again_by_itself() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(OURS)
        await box.keep.deploy(OPENLY, workflow="flow")
        await box.keep.rollback("flow", "1.0")
        assert (await refused(box, OPENLY))[0] is Code.NAME_TAKEN
        assert (await box.keep.deploy(OPENLY, workflow="flow")).version == "1.1"


async def test_new_refuses_a_name_that_there_is_and_takes_one_that_there_is_not() -> None:
    async with world(Fake()) as box:
        assert (await box.keep.deploy(OURS, new=True)).version == "1.0"
        for options in ({}, {"workflow": "flow"}):
            code, words = await refused(box, OURS, new=True, **options)
            assert (code, "but a new one was asked for" in words) == (Code.NAME_TAKEN, True)
        assert (await refused(box, script(name="other", producer="return 1;"), workflow="flow", new=True))[0] is (
            Code.NAME_DIFFERS
        )
        await box.keep.archive("flow")
        assert (await box.keep.deploy(OURS, new=True, workflow="flow")).version == "1.0"


@pytest.mark.parametrize("named", [None, "flow"])
async def test_what_is_not_to_be_new_is_refused_if_it_is_not_there(named: str | None) -> None:
    async with world(Fake()) as box:
        with pytest.raises(Rejected) as refusal:
            await box.keep.deploy(OURS, workflow=named, new=False)
        assert refusal.value.reason is Reason.WORKFLOW_NOT_FOUND
        assert await box.keep.workflows() == []


async def test_of_two_scripts_with_one_new_name_one_is_deployed() -> None:
    async with world(Fake()) as box:
        outcomes: list[str] = []

        async def deploy(source: str) -> None:
            try:
                outcomes.append((await box.keep.deploy(source)).version)
            except DeployRefused as error:
                outcomes.append(error.problems[0].code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deploy, OURS)
            tasks.start_soon(deploy, THEIRS)
        assert sorted(outcomes) == ["1.0", "name-taken"]


# Whose words they are.


async def test_words_of_another_author_have_none_of_the_grants_though_they_hide_their_calls() -> None:
    fake = Fake()
    async with world(fake, grants="explicit") as box:
        await box.keep.deploy(OURS, author="ann", grants=["fake.add"])
        assert (await box.keep.deploy(THEIRS, workflow="flow", author="mallory")).version == "2.0"
        assert await versions(box) == [("1.0", "ann"), ("2.0", "mallory")]
        assert await box.keep.grants("flow") == []
        await box.publish("flow", "in", "one")
        await box.settle()
        assert fake.texts == []
        assert (await box.last_run("flow", "file")).status == "paused:approval"


@pytest.mark.parametrize(("first", "second"), [("ann", "bob"), ("", "bob"), ("ann", "")])
async def test_what_another_author_names_has_to_be_accepted_again(first: str, second: str) -> None:
    fake = Fake()
    async with world(fake, grants="explicit") as box:
        await box.keep.deploy(OURS, author=first, grants=["fake.add"])
        with pytest.raises(PermissionsNeeded, match=r"Version 1\.0 is by .*: grants are not carried over"):
            await box.keep.deploy(OPENLY, workflow="flow", author=second)
        await box.keep.deploy(OPENLY, workflow="flow", author=second, grants=[Grant("fake.add", policy="ask")])
        assert await versions(box) == [("1.0", first), ("2.0", second)]
        assert [each.policy for each in await box.keep.grants("flow")] == ["ask"]


async def test_an_author_who_comes_back_does_not_get_the_grants_of_who_was_between() -> None:
    async with world(Fake(), grants="explicit") as box:
        await box.keep.deploy(OURS, author="ann", grants=["fake.add"])
        await box.keep.deploy(OPENLY, workflow="flow", author="bob", grants=["fake.add"])
        await box.keep.deploy(THEIRS, workflow="flow", author="ann")
        assert await versions(box) == [("1.0", "ann"), ("2.0", "bob"), ("3.0", "ann")]
        assert await box.keep.grants("flow") == []


async def test_a_rollback_has_the_author_and_the_grants_of_the_version_it_goes_back_to() -> None:
    fake = Fake()
    async with world(fake, grants="explicit") as box:
        await box.keep.deploy(OURS, author="ann", grants=["fake.add"])
        await box.keep.deploy(THEIRS, workflow="flow", author="bob")
        assert (await box.keep.rollback("flow", "1.0")).version == "1.0"
        await box.publish("flow", "in", "one")
        await box.settle()
        assert fake.texts == ["one"]
        # A change of hers comes after his version, and is not his.
        await box.keep.deploy(
            OURS.replace("prepared.data.id", '"two"'), workflow="flow", author="ann", grants="declared"
        )
        assert await versions(box) == [("1.0", "ann"), ("2.0", "bob"), ("3.0", "ann")]


@pytest.mark.parametrize("author", ["a\u202eb", "x" * 101, " ann"])
async def test_an_author_has_a_name_that_can_be_seen(author: str) -> None:
    async with world(Fake()) as box:
        with pytest.raises(ValueError, match="the author"):
            await box.keep.deploy(OURS, author=author)
        assert await box.keep.workflows() == []


# To whom the workflow belongs.


async def owner(box: TimedBox) -> str:
    return (await box.keep.workflow("flow")).owner


async def test_a_workflow_belongs_to_the_owner_that_its_first_deploy_names_and_to_the_nameless_one_otherwise() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(OURS, owner="ann")
        await box.keep.deploy(script(name="other", producer="return 1;"))
        assert {each.name: each.owner for each in await box.keep.workflows()} == {"flow": "ann", "other": ""}


async def test_a_deploy_that_names_no_owner_keeps_it_and_so_do_a_rollback_and_a_repeat() -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(OURS, owner="ann")
        await box.keep.deploy(OPENLY, workflow="flow")
        assert await owner(box) == "ann"
        await box.keep.rollback("flow", "1.0")
        assert await owner(box) == "ann"
        assert (await box.keep.deploy(OURS)).version == "1.0"
        assert (await box.keep.deploy(OURS, owner="ann")).version == "1.0"
        assert await owner(box) == "ann"


@pytest.mark.parametrize(("source", "version"), [(OURS, "1.0"), (OPENLY, "1.1")])
@pytest.mark.parametrize("other", ["bob", ""])
async def test_a_caller_who_names_the_workflow_and_another_owner_hands_it_over(
    source: str, version: str, other: str
) -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(OURS, owner="ann")
        assert (await box.keep.deploy(source, workflow="flow", owner=other, by="ada")).version == version
        assert await owner(box) == other
        [handed_over] = [each for each in box.journal if f'"owner":["ann","{other}"]' in each.changed]
        assert (handed_over.operation, '"by":"ada"' in handed_over.changed) == ("activate_script", True)
        await box.publish("flow", "in", "one")
        await box.settle()
        assert (await box.last_run("flow", "file")).status == "committed"


@pytest.mark.parametrize("other", ["bob", ""])
async def test_the_same_script_for_another_owner_does_not_take_the_workflow_from_the_first(other: str) -> None:
    async with world(Fake()) as box:
        await box.keep.deploy(OURS, owner="ann")
        code, words = await refused(box, OURS, owner=other)
        assert (code, "another owner" in words, "`workflow='flow'`" in words) == (Code.NAME_TAKEN, True, True)
        assert "ann" not in words, "one tenant is not told the name of another"


@pytest.mark.parametrize("unfit", ["a\u202eb", "x" * 101, " ann", " "])
async def test_an_owner_has_a_name_that_can_be_seen(unfit: str) -> None:
    async with world(Fake()) as box:
        with pytest.raises(ValueError, match="the owner"):
            await box.keep.deploy(OURS, owner=unfit)
        assert await box.keep.workflows() == []


# What the owner has set for a name.


async def test_a_script_does_not_choose_the_settings_of_a_workflow_by_its_name() -> None:
    async with world(Fake(), policies={"flow": Policy(mutate_reads="by_id")}) as box:
        for options in ({}, {"new": True}):
            code, words = await refused(box, THEIRS, **options)
            assert code is Code.NAME_TAKEN
            assert "has settings for a workflow 'flow'" in words
        first = await box.keep.deploy(OURS, workflow="flow")
        assert await box.keep.deploy(OURS) == first
        await box.keep.archive("flow")
        assert (await refused(box, THEIRS))[0] is Code.NAME_TAKEN
        assert (await box.keep.deploy(OURS, workflow="flow", new=True)).version == "1.0"


@pytest.mark.parametrize("field", ["policies", "policy", "grants", "author", "limits", "onUnknown"])
async def test_a_script_declares_no_settings_of_its_own(field: str) -> None:
    async with world(Fake(), grants="explicit") as box:
        await box.keep.deploy(OURS, grants=["fake.add"])
        said = OURS.replace('name: "flow"', f'name: "flow", {field}: {{ mutate_reads: "by_id" }}')
        await box.keep.deploy(said, workflow="flow")
        new, old = await box.keep.versions("flow")
        assert (new.declaration, new.author) == (old.declaration, "")
