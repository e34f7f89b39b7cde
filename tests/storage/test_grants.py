"""Permissions of a major version, and how often a day they were used."""

import pytest

from keep_storage import Rejected, reads
from keep_storage.model import GrantPolicy, RunStatus
from tests.storage.world import WORKFLOW, World


def granted(world: World, major: int = 1) -> dict[str, GrantPolicy]:
    return {grant.permission: grant.policy for grant in reads.grants(world.store.queries(), WORKFLOW, major)}


def used(world: World, permission: str = "gmail.send", day: int = 1, workflow: str = WORKFLOW) -> int:
    return reads.calls_on_day(world.store.queries(), workflow, permission, day)


# Granting and taking back.


def test_a_grant_keeps_its_limits_word_for_word(world: World) -> None:
    limits = '{ "per_day": 5,\n "to": ["ada@example.org"] }'
    grant = world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ASK, limits, by="ada")
    assert grant.limits == limits
    assert reads.grants(world.store.queries(), WORKFLOW, 1) == [grant]


@pytest.mark.parametrize("limits", ["", "null", "5", '"{}"', "[]", "{", "{} {}"])
def test_limits_are_an_object(world: World, limits: str) -> None:
    with pytest.raises(Rejected):
        world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW, limits)


def test_a_permission_is_taken_back_from_its_major_version_alone(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW)
    world.model.grant_permission(WORKFLOW, 2, "gmail.read", GrantPolicy.ALLOW)
    given = world.model.grant_permission(WORKFLOW, 2, "gmail.send", GrantPolicy.ASK, by="ada")
    assert world.model.revoke_permission(WORKFLOW, 2, "gmail.send", by="bob") == given
    assert set(granted(world, 2)) == {"gmail.read"}
    assert set(granted(world, 1)) == {"gmail.send"}


def test_what_was_taken_back_can_be_granted_again(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW)
    world.model.revoke_permission(WORKFLOW, 1, "gmail.send")
    assert granted(world) == {}
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ASK)
    assert granted(world) == {"gmail.send": GrantPolicy.ASK}


def test_the_journal_says_who_granted_and_who_took_back(world: World) -> None:
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW, by="ada")
    world.model.revoke_permission(WORKFLOW, 1, "gmail.send", by="bob")
    grant, revoke = world.journal()[-2:]
    assert (grant.operation, revoke.operation) == ("grant_permission", "revoke_permission")
    assert '"by":"ada"' in grant.changed
    assert '"by":"bob"' in revoke.changed


# Using.


def test_calls_of_a_day_are_counted_up_to_the_limit(world: World) -> None:
    run = world.start()
    assert [world.model.use_grant(run.id, "gmail.send", 1, 3) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(Rejected):
        world.model.use_grant(run.id, "gmail.send", 1, 3)
    assert used(world) == 3


def test_every_day_counts_for_itself(world: World) -> None:
    run = world.start()
    assert [world.model.use_grant(run.id, "gmail.send", day, 1) for day in (1, 2, 0)] == [1, 1, 1]


def test_every_permission_counts_for_itself(world: World) -> None:
    run = world.start()
    assert [world.model.use_grant(run.id, each, 1, 1) for each in ("gmail.send", "gmail.read")] == [1, 1]


def test_every_workflow_counts_for_itself(world: World) -> None:
    world.deploy("wf_other")
    for workflow in (WORKFLOW, "wf_other"):
        assert world.model.use_grant(world.start("poll", workflow).id, "gmail.send", 1, 1) == 1
    assert (used(world), used(world, workflow="wf_other")) == (1, 1)


def test_all_runs_of_a_day_count_together_whatever_became_of_them(world: World) -> None:
    run = world.start("poll")
    world.model.use_grant(run.id, "gmail.send", 1, 5)
    world.model.commit_producer(run.id, next_run_at=0)
    run = world.start("poll")
    world.model.use_grant(run.id, "gmail.send", 1, 5)
    world.model.update_handler_run_status(run.id, RunStatus.CRASHED)
    assert world.model.use_grant(world.start().id, "gmail.send", 1, 5) == 3


def test_a_limit_that_was_raised_lets_the_count_go_on(world: World) -> None:
    run = world.start()
    world.model.use_grant(run.id, "gmail.send", 1, 1)
    with pytest.raises(Rejected):
        world.model.use_grant(run.id, "gmail.send", 1, 1)
    assert world.model.use_grant(run.id, "gmail.send", 1, 2) == 2


def test_a_limit_that_was_lowered_is_reached(world: World) -> None:
    run = world.start()
    for _ in range(3):
        world.model.use_grant(run.id, "gmail.send", 1, 5)
    with pytest.raises(Rejected):
        world.model.use_grant(run.id, "gmail.send", 1, 2)


def test_to_take_a_permission_back_and_grant_it_again_does_not_reset_the_count(world: World) -> None:
    run = world.start()
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW)
    world.model.use_grant(run.id, "gmail.send", 1, 5)
    world.model.revoke_permission(WORKFLOW, 1, "gmail.send")
    world.model.grant_permission(WORKFLOW, 1, "gmail.send", GrantPolicy.ALLOW)
    assert world.model.use_grant(run.id, "gmail.send", 1, 5) == 2


def test_a_use_changes_nothing_but_the_count(world: World) -> None:
    run = world.start()
    before = (world.workflow(), world.run(run.id), world.handlers())
    world.model.use_grant(run.id, "gmail.send", 1, 5)
    assert (world.workflow(), world.run(run.id), world.handlers()) == before
    entry = world.journal()[-1]
    assert (entry.operation, entry.run_id) == ("use_grant", run.id)
