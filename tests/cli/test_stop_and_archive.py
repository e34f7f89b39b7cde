"""Ending a run, ending a workflow, bringing it back: what is done, what is refused, and in which words."""

import os
import shlex
import subprocess
from pathlib import Path

import anyio
import anyio.to_thread

import keep_actors
from keep_actors import Connector, Grant, Keep, mutation
from keep_actors.cli.exit_codes import Exit
from keep_actors.maintenance import Proposal, RepairTask
from tests.cli.at_work import Desk, Office, at_work, order
from tests.cli.operating import KEEP, script

JOB = """
export default Keep.workflow({
  name: "digest",
  jobs: {
    send: {
      schedule: { interval: "1d" },
      async handler(ctx) {
        for (const id of ["o1", "o2", "o3"])
          await ctx.withItem(id, `Order ${id}`, async (ctx) => { await ctx.post.send({ order: id }); });
      },
    },
  },
});
"""


class Post(Connector):
    """A post office that takes its time with each letter, until it is told to go on."""

    name = "post"

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.is_sending = anyio.Event()
        self.go_on = anyio.Event()

    @mutation(identity=["order"])
    async def send(self, order: str) -> None:
        self.sent.append(order)
        self.is_sending.set()
        await self.go_on.wait()


# Stopping a run.


def test_a_run_is_stopped_at_its_next_call_and_the_journal_says_who_and_why(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")

    def act() -> None:
        [run] = desk.objects("runs", "digest")
        assert "There is no run 'run_none'" in desk.run("stop", "digest", "--run", "run_none", code=Exit.WRONG).stderr
        [ending] = desk.objects("stop", "digest", "--run", run["id"][:24], "--by", "ann", "--why", "the wrong list")
        assert ending["run_id"] == run["id"]
        [entry] = [each for each in desk.objects("log", "digest") if each["operation"] == "stop_run"]
        assert (entry["run_id"], entry["why"]) == (run["id"], "the wrong list")
        said = desk.run("stop", "digest").stdout
        assert said == f"Run {run['id']} of digest ends at its next call. What it did stays done.\n"

    async def work() -> None:
        post = Post()
        async with keep_actors.open(desk.db, connectors=[post], sandbox="thread", control=True) as keep:
            await keep.deploy(JOB, grants="declared")
            await post.is_sending.wait()
            await anyio.to_thread.run_sync(act)
            post.go_on.set()
            await keep.wait_idle()
            assert post.sent == ["o1"], "the call that was on its way, and no other"

    anyio.run(work)
    assert [each["state"] for each in desk.objects("items", "digest")] == ["done", "processing"]
    assert desk.objects("status")[0]["failing"] == [], "it did not fail"


def test_where_no_run_is_active_or_another_one_a_stop_is_refused(tmp_path: Path) -> None:
    async def fill(keep: Keep) -> None:
        await keep.deploy(script("flow"), grants="declared")
        await order(keep, "flow", "a")

    def act(office: Office) -> None:
        assert "No run of workflow" in (said := office.run("stop", "flow", code=Exit.WRONG).stderr)
        assert "is active. [run_not_active]" in said
        [run] = office.objects("runs", "flow")
        assert "is not active" in office.run("stop", "flow", "--run", run["id"], code=Exit.WRONG).stderr

    at_work(tmp_path / "keep.db", fill, act)
    assert "Start one: keep run" in Desk(tmp_path / "keep.db").run("stop", "flow", code=Exit.NO_RUNTIME).stderr


# Archiving, and back.


async def archived(keep: Keep) -> None:
    await keep.deploy(script("flow"), grants="declared")
    await keep.archive("flow", by="ann")


def test_what_is_added_to_an_archived_workflow_is_refused_by_name_and_by_id_with_the_way_back(tmp_path: Path) -> None:
    (tmp_path / "flow.js").write_text(script("flow"), "utf-8")

    def act(office: Office) -> None:
        [workflow_id] = [each["id"] for each in office.objects("status", "--all")]
        before, back = office.objects("log", "--limit", "1"), f"keep unarchive --db {office.db} {workflow_id}"
        for named in ("flow", workflow_id, workflow_id[:20]):
            for words in (
                ("publish", named, "orders", "m"),
                ("deploy", str(tmp_path / "flow.js"), "--workflow", named, "--accept"),
                ("grant", named, "shop.ship"),
                ("rollback", named, "1.0"),
                ("pause", named),
                ("resume", named),
                ("run-now", named),
            ):
                said = office.run(*words, code=Exit.WRONG).stderr
                assert f"Workflow 'flow' ({workflow_id}) is archived" in said
                assert back in said
        assert office.objects("log", "--limit", "1") == before
        # What it says to type is what works.
        office.run(*shlex.split(back)[1:])
        office.run("resume", "flow")
        office.run("publish", "flow", "orders", "m", "--payload", '"m"')

    assert at_work(tmp_path / "keep.db", archived, act).shipped == ["m"]


def test_an_archived_workflow_comes_back_paused_without_a_runtime_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "keep.db")
    at_work(desk.db, archived, lambda _: None)
    done = desk.run("unarchive", "flow", "--by", "bob")
    assert done.stdout.startswith("flow is paused. To run it: keep resume --db")
    assert "this was written into" in done.stderr
    [entry] = desk.objects("log", "--limit", "1")
    assert (entry["operation"], entry["changed"]["by"]) == ("unarchive_workflow", "bob")
    assert "is paused, not archived" in desk.run("unarchive", "flow", code=Exit.WRONG).stderr
    assert desk.objects("resume", "flow")[0]["status"] == "active"


def test_whose_name_another_workflow_has_by_now_is_not_brought_back(tmp_path: Path) -> None:
    async def fill(keep: Keep) -> None:
        await archived(keep)
        await keep.deploy(script("flow"), grants="declared")

    def act(office: Office) -> None:
        [old, new] = [each["id"] for each in office.objects("status", "--all")]
        said = office.run("unarchive", "flow", code=Exit.WRONG).stderr
        assert "is named 'flow' by now; archive that one first." in said
        office.run("archive", new, "--yes")
        assert office.objects("unarchive", old)[0]["status"] == "paused"

    at_work(tmp_path / "keep.db", fill, act)


def test_archiving_rejects_what_waits_and_leaves_what_may_have_happened_to_be_answered(tmp_path: Path) -> None:
    async def fill(keep: Keep) -> None:
        for name, grant in (("asks", Grant("shop.ship", policy="ask")), ("doubts", Grant("shop.ship"))):
            await keep.deploy(script(name), grants=[grant])
            await order(keep, name, f"lost {name}")

    def act(office: Office) -> None:
        assert len(office.objects("attention", code=Exit.WAITING)) == 2
        assert "End this workflow?" in office.run("archive", "asks", code=Exit.USAGE).stderr
        for name in ("asks", "doubts"):
            office.run("archive", name, "--yes")
        [waiting] = office.objects("attention", code=Exit.WAITING)
        assert (waiting["workflow"], waiting["kind"]) == ("doubts", "unknown")
        office.run("resolve", "--workflow", "doubts", "skip", "--why", "gone")
        office.run("attention")
        office.run("unarchive", "asks")
        assert office.states("asks") == {"lost asks": "pending"}, "who brings it back is asked anew"

    at_work(tmp_path / "keep.db", fill, act)


def test_the_names_of_archived_workflows_are_completed_where_one_is_brought_back(tmp_path: Path) -> None:
    async def fill(keep: Keep) -> None:
        await archived(keep)
        await keep.deploy(script("flows"), grants="declared")

    at_work(tmp_path / "keep.db", fill, lambda _: None)
    for command, names in (("unarchive", ["plain,flow"]), ("pause", ["plain,flows"])):
        line = f"keep {command} --db {tmp_path / 'keep.db'} fl"
        words = {"COMP_WORDS": line, "COMP_CWORD": "4", "_KEEP_COMPLETE": "bash_complete"}
        done = subprocess.run([KEEP], env=os.environ | words, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines() == names


# Repairs.


class Mechanic:
    """Proposes the same script again and again, and never calls it safe."""

    is_automatic = True

    async def repair(self, task: RepairTask) -> Proposal:
        return Proposal(task.source.replace('throw new Error("no");', "/* mended */"), "potentially_impactful")


def test_a_repair_is_accepted_by_the_version_that_was_seen_and_no_other(tmp_path: Path) -> None:
    broken = script("flow").replace("await ctx.shop.ship", 'throw new Error("no"); await ctx.shop.ship')

    async def fill(keep: Keep) -> None:
        await keep.deploy(broken, grants="declared")
        await order(keep, "flow", "a")

    def act(office: Office) -> None:
        [seen] = office.objects("repair", "show", "flow")
        [waiting] = office.objects("attention", code=Exit.WAITING)
        show, accept, refuse = waiting["commands"][:3]
        assert "-" in office.run(*shlex.split(show)[1:]).stdout
        assert refuse.startswith("keep repair refuse --db")
        assert accept == f"keep repair accept --db {office.db} flow {seen['version']}"
        for other in ("1.0", "1.7"):
            assert seen["version"] in office.run("repair", "accept", "flow", other, code=Exit.WRONG).stderr
        assert office.objects("status", "flow")[0]["version"] == "1.0"
        assert "Missing argument 'VERSION'" in office.run("repair", "accept", "flow", code=Exit.USAGE).stderr
        office.run(*shlex.split(accept)[1:])
        assert office.objects("status", "flow")[0]["version"] == seen["version"]

    assert at_work(tmp_path / "keep.db", fill, act, maintainer=Mechanic()).shipped == ["a"]
