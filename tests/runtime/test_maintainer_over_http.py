"""A maintainer that asks a model, in a runtime, when the model's server does everything wrong.

Whatever comes over the wire, the workflow waits with words for a person, its neighbours go on, nothing is called that
was not granted, and nobody is asked more often than the budget says.
"""

import anyio
import httpx
import pytest
from anyio.abc import SocketStream

from keep_actors import Policy
from keep_actors.maintenance import ChatMaintainer
from keep_actors.secret import Secret
from keep_storage.model import FailureClass
from tests.maintenance.world import Plan, a_server, an_answer, answers, completes, sends
from tests.runtime.fakes import Fake
from tests.runtime.world import MINUTE, TimedBox, script, world

pytestmark = pytest.mark.anyio

KEY = "sk-hush-0123456789abcdef"
ADD = "await c.fake.add({ text: prepared.data.id });"
BROKEN = script(producer="return 1;", prepare="null.x;", mutate=ADD, next_="return 1;")
MENDED = script(producer="return 1;", mutate=ADD, next_="return 1;")
NAMED = MENDED.replace("c.fake.add", "ctx.fake.put")
COMPUTED = MENDED.replace("c.fake.add", 'c["fa" + "ke"]["p" + "ut"]')
WITHOUT_CONSUMER = script(producer="return 1;")
NEIGHBOUR = script(name="neighbour", mutate=ADD)
BUDGET = Policy().repairs_max
assert len({MENDED, NAMED, COMPUTED}) == 3, "the replacements replace"


def proposes(source: str) -> str:
    """The answer of a model that calls this script safe."""
    return an_answer(f"{source}\n")


async def hangs(_: SocketStream) -> None:
    await anyio.sleep_forever()


async def breaks_off(stream: SocketStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{")


BAD: dict[str, tuple[Plan, str]] = {
    "words": (completes("I would rather not."), "no ```js block"),
    "a page": (answers(200, b"<html>welcome</html>"), "is not JSON"),
    "bytes": (sends(bytes(range(256)) * 10), "failed"),
    "half an answer": (breaks_off, "failed"),
    "an error": (answers(500, b"oh no"), "is out of order (500)"),
    "a limit": (answers(429, b"{}"), "(429)"),
    "nothing, for ever": (hangs, "gave no answer within 50 ms"),
    "no script": (completes(proposes("not a script")), "The last one: At 1:"),
    "the same script": (completes(proposes(BROKEN)), "is the same as before"),
    "a script that names what was not granted": (completes(proposes(NAMED)), "was not granted"),
    "a script without its consumer": (completes(proposes(WITHOUT_CONSUMER)), "consumers.file is missing"),
    "its key": (completes(proposes(f"// {KEY}\n{MENDED}")), "repeats the API key"),
}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is on this machine, whatever the machine's way to the outside is."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


async def broken(box: TimedBox) -> None:
    """A workflow that fails in `prepare`, and one beside it that does not."""
    await box.keep.deploy(NEIGHBOUR, grants=["fake.add"])
    await box.keep.deploy(BROKEN, grants=["fake.add"])
    await box.publish("flow", "in", "one")
    await box.settle()


async def assert_a_person_is_told(box: TimedBox, fake: Fake, words: str) -> None:
    """After the budget: once, in words, without the key. The neighbour has noticed nothing."""
    for _ in range(8):
        await box.leap(15 * MINUTE)
    workflow = await box.keep.workflow("flow")
    assert (workflow.error_class, workflow.maintenance) == (FailureClass.LOGIC, True)
    assert f"{BUDGET} attempt" in workflow.error
    assert words in workflow.error
    assert KEY not in workflow.error
    [needs] = await box.keep.attention()
    assert (needs.workflow, needs.kind, needs.words) == ("flow", "maintenance", workflow.error)
    assert len(await box.keep.versions("flow")) == 1
    assert len(await box.runs("flow", "file")) == 1
    assert (await box.statuses("flow", "in"), fake.calls) == ({"one": "pending"}, [])
    await box.publish("neighbour", "in", "two")
    await box.settle()
    assert fake.texts == ["two"]


@pytest.mark.parametrize("what", BAD)
async def test_a_server_that_answers_badly_breaks_nothing_and_is_asked_as_often_as_the_budget_says(what: str) -> None:
    plan, words = BAD[what]
    fake, timeout_ms = Fake(), 50 if plan is hangs else 10_000
    async with a_server(plan) as server, httpx.AsyncClient(trust_env=False, verify=False) as client:
        maintainer = ChatMaintainer(server.url, "m", api_key=Secret(KEY), timeout_ms=timeout_ms, client=client)
        async with world(fake, maintainer=maintainer, grants="explicit") as box:
            await broken(box)
            await assert_a_person_is_told(box, fake, words)
        assert len(server.asked) == BUDGET


async def test_a_server_that_is_down_is_asked_no_more_than_the_budget_says() -> None:
    async with a_server(hangs) as server:
        gone = server.url
    fake = Fake()
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:
        maintainer = ChatMaintainer(gone, "m", api_key=Secret(KEY), client=client)
        async with world(fake, maintainer=maintainer, grants="explicit") as box:
            await broken(box)
            await assert_a_person_is_told(box, fake, "The request to")


async def test_a_server_that_hangs_is_left_after_the_time_of_the_policy_whatever_the_maintainer_says() -> None:
    fake = Fake()
    async with a_server(hangs) as server, httpx.AsyncClient(trust_env=False, verify=False) as client:
        maintainer = ChatMaintainer(server.url, "m", api_key=None, timeout_ms=10_000_000, client=client)
        policy = Policy(repair_timeout_ms=50)
        async with world(fake, maintainer=maintainer, grants="explicit", policy=policy) as box:
            await broken(box)
            await assert_a_person_is_told(box, fake, "no answer within 50 ms")
        assert len(server.asked) == BUDGET


async def test_a_runtime_ends_while_a_server_hangs() -> None:
    async with a_server(hangs) as server, httpx.AsyncClient(trust_env=False, verify=False) as client:
        maintainer = ChatMaintainer(server.url, "m", api_key=None, client=client)
        with anyio.fail_after(20):
            async with world(Fake(), maintainer=maintainer, shutdown_grace_ms=1) as box:
                await box.keep.deploy(BROKEN)
                await box.publish("flow", "in", "one")
                while not server.asked:
                    await anyio.wait_all_tasks_blocked()
                    await box.keep.workflows()


async def test_a_repair_that_reaches_by_a_computed_name_what_was_not_granted_is_stopped_at_the_call() -> None:
    fake = Fake()
    async with (
        a_server(completes(proposes(COMPUTED))) as server,
        httpx.AsyncClient(trust_env=False, verify=False) as client,
    ):
        maintainer = ChatMaintainer(server.url, "m", api_key=Secret(KEY), client=client)
        async with world(fake, maintainer=maintainer, grants="explicit") as box:
            await broken(box)
            assert [each.source for each in await box.keep.versions("flow")] == [f"{COMPUTED}\n", BROKEN]
            run = await box.last_run("flow", "file")
            assert (run.status, run.error_class) == ("paused:approval", "permission")
            assert (fake.calls, await box.keep.outputs("flow")) == ([], [])
            assert [each.permission for each in await box.keep.grants("flow")] == ["fake.add"]
            assert await box.statuses("flow", "in") == {"one": "pending"}
            [needs] = await box.keep.attention()
            assert (needs.kind, "'fake.put'" in needs.words) == ("error", True)
            for _ in range(8):
                await box.leap(15 * MINUTE)
            assert (len(await box.runs("flow", "file")), fake.calls, len(server.asked)) == (2, [], 1)


async def test_a_good_answer_is_deployed_and_what_waited_goes_on() -> None:
    fake = Fake()
    async with (
        a_server(completes(proposes(MENDED))) as server,
        httpx.AsyncClient(trust_env=False, verify=False) as client,
    ):
        maintainer = ChatMaintainer(server.url, "m", api_key=Secret(KEY), client=client)
        async with world(fake, maintainer=maintainer, grants="explicit") as box:
            await broken(box)
            assert (fake.texts, await box.statuses("flow", "in")) == (["one"], {"one": "consumed"})
            assert await box.keep.attention() == []
    [asked] = server.asked
    assert b"null.x" in asked.body
