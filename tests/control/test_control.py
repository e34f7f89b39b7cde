"""The control socket: who may talk to a runtime, what can be asked, and that nobody who misbehaves hurts it."""

import inspect
import json
import os
import re
import socket
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import anyio
import anyio.from_thread
import anyio.to_thread
import msgspec
import pytest

import keep_actors
from keep_actors import Grant, Keep
from keep_actors.api import commands
from keep_actors.api.command import Command, Right, StorageCommand
from keep_actors.api.commands import (
    COMMANDS,
    Amend,
    Approvals,
    DeployScript,
    Pause,
    PublishMessage,
    Resolve,
    Resume,
    StopActiveRun,
    Unarchive,
    Unknowns,
)
from keep_actors.control import protocol
from keep_actors.control.client import CommandRefused, ControlClient, Lost
from keep_actors.control.place import ControlUnavailable, NoRuntimeThere, connect, listening, place_of
from keep_actors.control.protocol import Follow, Hello
from keep_actors.control.server import Patience, Server
from keep_storage.model import Mutation
from tests.runtime.fakes import Fake, applies_and_raises
from tests.runtime.world import script

pytestmark = pytest.mark.anyio

T = TypeVar("T")

SOCKET_DOCS = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8").partition("## The control socket")[2]
SCRIPT = script(name="flow", prepare="return { reservations: [] };")


@asynccontextmanager
async def controlled(db: Path) -> AsyncIterator[Keep]:
    async with keep_actors.open(db, sandbox="thread", control=True) as keep:
        await keep.deploy(SCRIPT)
        yield keep


@asynccontextmanager
async def served(db: Path, patience: Patience) -> AsyncIterator[Path]:
    """A runtime with a server of so much patience."""
    async with (
        listening(place_of(db)) as listener,
        keep_actors.open(db, sandbox="thread") as keep,
        anyio.create_task_group() as tasks,
    ):
        await keep.deploy(SCRIPT)
        await tasks.start(Server(listener, patience).run, keep)
        yield db
        tasks.cancel_scope.cancel()


async def in_thread(function: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)


def talk(db: Path) -> ControlClient:
    client = ControlClient.connect(place_of(db), db)
    assert client is not None
    return client


def ask(db: Path, command: Command[T]) -> T:
    with talk(db) as client:
        return client.ask(command, timeout_s=20)


def say(db: Path, data: bytes) -> dict[str, Any]:
    """Send these bytes, and read what comes back until the connection ends."""
    connection = connect(place_of(db), os.getuid(), timeout_s=20)
    with connection, connection.makefile("rb") as lines:
        # It may have been refused before it has said all of it: then the connection is reset behind the answer.
        with suppress(OSError):
            connection.sendall(data)
        said: dict[str, Any] = json.loads(lines.readline())
        with suppress(ConnectionResetError):
            assert lines.read() == b"", "the runtime hangs up"
        return said


HELLO = b'{"v":1,"do":"hello"}\n'


async def until_alone(db: Path) -> None:
    """Wait until there is room for one more, where there is room for one."""
    with anyio.fail_after(60):
        while "error" in await in_thread(partial(say, db, HELLO)):
            pass


# What can be asked.


@pytest.mark.parametrize("declared", COMMANDS, ids=lambda each: each.__name__)
def test_every_command_is_a_method_of_the_library_with_the_same_fields_and_answer(declared: type[Command[Any]]) -> None:
    method = getattr(Keep, str(declared.__struct_config__.tag))
    parameters = inspect.signature(method).parameters
    for field in msgspec.structs.fields(declared):
        if field.name != "v":
            assert field.name in parameters, field.name
            assert field.required is (parameters[field.name].default is inspect.Parameter.empty), field.name
    assert get_type_hints(method)["return"] == declared.answer_type()


def test_every_declaration_is_in_the_table_and_only_changes_are_written_without_a_runtime() -> None:
    declared = [each for each in vars(commands).values() if isinstance(each, type) and issubclass(each, Command)]
    assert set(COMMANDS) == set(declared) - {
        Command,
        StorageCommand,
        commands.ItemsChange,
        commands.MutationChange,
        commands.WorkflowChange,
    }
    assert all(issubclass(each, StorageCommand) for each in COMMANDS if not each.needs_runtime)


def test_every_request_says_which_right_it_needs() -> None:
    assert {each.right for each in protocol.REQUESTS} == set(Right)
    reads = {each.__name__ for each in protocol.REQUESTS if each.right is Right.READ}
    assert reads == {"Approvals", "Follow", "Hello", "ParameterNames", "ShowProposedScript", "Unknowns"}
    listed = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", SOCKET_DOCS, re.M))
    told = {Right(right): set(re.findall(r"`(\w+)`", words)) for right, words in listed.items()}
    assert told == {
        right: {str(each.__struct_config__.tag) for each in protocol.REQUESTS if each.right is right} for right in Right
    }
    assert len({each.__struct_config__.tag for each in protocol.REQUESTS}) == len(protocol.REQUESTS)


async def test_a_request_is_answered_with_what_it_carries(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    async with controlled(db) as keep:
        about = await in_thread(lambda: ask(db, Hello()))
        assert (about.pid, about.version) == (os.getpid(), keep_actors.__version__)
        paused = await in_thread(lambda: ask(db, Pause(workflow="flow", by="ann")))
        assert paused == await keep.workflow("flow")
        publish = PublishMessage(
            workflow="flow", topic="in", message_id="m1", title="One", payload={"n": [1, None, "\n"]}
        )
        [event] = await in_thread(lambda: ask(db, publish))
        assert (event.message_id, event.payload) == ("m1", '{"n":[1,null,"\\n"]}')


async def test_what_is_refused_is_refused_with_its_reason(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    async with controlled(db):
        with pytest.raises(CommandRefused, match="There is no workflow 'flo'") as refused:
            await in_thread(lambda: ask(db, Pause(workflow="flo")))
        assert (refused.value.error.kind, refused.value.error.reason) == ("rejected", "workflow_not_found")
        too_much = PublishMessage(workflow="flow", topic="in", message_id="m", title="m", payload="x" * 300_000)
        with pytest.raises(CommandRefused, match="more than 262144 bytes") as refused:
            await in_thread(lambda: ask(db, too_much))
        assert refused.value.error.kind == "invalid"


async def test_a_result_that_does_not_fit_is_refused_with_an_example_and_one_that_was_wrong_is_amended(
    tmp_path: Path,
) -> None:
    db, fake = tmp_path / "keep.db", Fake()
    fake.plan("add", applies_and_raises(ConnectionError("lost")))
    source = script(name="adds", mutate="await c.fake.add({ text: prepared.data.id });")
    async with keep_actors.open(db, connectors=[fake], sandbox="thread", control=True) as keep:
        await keep.deploy(source, grants="all")
        await keep.publish("adds", "in", message_id="one", title="One")
        await keep.wait_idle()
        await keep.pause("adds")
        [asked] = await in_thread(lambda: ask(db, Unknowns()))
        assert asked.result_type == "{ id: string; text: string }"

        def resolve(result: Any) -> Mutation:
            return ask(db, Resolve(mutation_id=asked.mutation_id, verdict="happened", by="ann", result=result))

        def amend(result: Any) -> Mutation:
            return ask(db, Amend(mutation_id=asked.mutation_id, by="bob", why="misread", result=result))

        for say_wrongly in (resolve, amend):
            with pytest.raises(CommandRefused, match="id: is required and missing") as refused:
                await in_thread(partial(say_wrongly, {"text": "one"}))
            assert (refused.value.error.kind, refused.value.error.example) == ("result", asked.result_example)
        await in_thread(lambda: resolve({"id": "a", "text": "one"}))
        amended = await in_thread(lambda: amend({"id": "b", "text": "one"}))
        assert (amended.result, amended.resolved_who) == ('{"id":"b","text":"one"}', "bob")


async def test_a_script_with_the_name_of_a_workflow_does_not_replace_it_by_the_socket_either(tmp_path: Path) -> None:
    db, fake = tmp_path / "keep.db", Fake()
    ours = script(mutate="await ctx.fake.add({ text: prepared.data.id });")
    theirs = script(mutate='await c.fake.add({ text: "for the attacker" });')
    async with keep_actors.open(db, connectors=[fake], sandbox="thread", control=True) as keep:

        async def deploy(**fields: Any) -> str:
            return (await in_thread(lambda: ask(db, DeployScript(**fields)))).version

        assert await deploy(source=ours, grants=[Grant("fake.add")], author="ann", new=True) == "1.0"
        for fields in ({}, {"new": True}, {"new": False}, {"major": True}, {"author": "ann"}):
            with pytest.raises(CommandRefused, match=r"the workflow 'flow' .* already exists") as refused:
                await deploy(source=theirs, **fields)
            assert refused.value.error.kind == "refused"
        assert await deploy(source=ours, author="ann") == "1.0"
        assert await deploy(source=theirs, workflow="flow", author="mallory") == "2.0"
        await keep.publish("flow", "in", message_id="one", title="One")
        await keep.wait_idle()
        assert fake.texts == []
        assert [each.author for each in await keep.versions("flow")] == ["mallory", "ann"]


async def test_the_owner_of_a_workflow_is_named_by_the_socket_and_its_name_is_checked(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    async with keep_actors.open(db, sandbox="thread", control=True) as keep:

        async def deploy(**fields: Any) -> str:
            command = DeployScript(source=script(producer="return 1;"), **fields)
            await in_thread(lambda: ask(db, command))
            return (await keep.workflow("flow")).owner

        assert await deploy(owner="ann") == "ann"
        assert await deploy() == "ann"
        assert await deploy(owner="bob", workflow="flow") == "bob"
        for fields, words in (({"owner": "ann"}, "and another owner"), ({"owner": "a\u202eb"}, "the owner 'a")):
            with pytest.raises(CommandRefused, match=words):
                await deploy(**fields)
        assert (await keep.workflow("flow")).owner == "bob"


async def test_calls_that_wait_are_found_by_permission_and_a_run_that_is_not_there_is_not_stopped(
    tmp_path: Path,
) -> None:
    db, fake = tmp_path / "keep.db", Fake()
    source = script(name="adds", mutate="await c.fake.add({ text: prepared.data.id });")
    async with keep_actors.open(db, connectors=[fake], sandbox="thread", control=True) as keep:
        await keep.deploy(source, grants=[Grant("fake.add", policy="ask"), "fake.search"])
        await keep.publish("adds", "in", message_id="one", title="One")
        await keep.wait_idle()
        asked = Approvals(workflow="adds", permission="fake.add")
        assert await in_thread(lambda: ask(db, asked)) == await keep.approvals()
        other = Approvals(workflow="adds", permission="fake.search")
        assert await in_thread(lambda: ask(db, other)) == []
        with pytest.raises(CommandRefused, match=r"No run of workflow .* is active") as refused:
            await in_thread(lambda: ask(db, StopActiveRun(workflow="adds", by="ann")))
        assert refused.value.error.reason == "run_not_active"
        await keep.archive("adds", by="ann")
        assert await in_thread(lambda: ask(db, Approvals())) == [], "archiving leaves no question"
        back = await in_thread(lambda: ask(db, Unarchive(workflow="adds", by="ann")))
        assert back.status == "paused"


async def test_the_journal_is_followed_until_the_runtime_ends(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    heard: list[str] = []
    until_paused = anyio.Event()

    def follow() -> None:
        with talk(db) as client, suppress(Lost):
            for entry in client.follow(Follow(after=0)):
                heard.append(entry.operation)
                if entry.operation == "pause_workflow":
                    anyio.from_thread.run_sync(until_paused.set)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks, controlled(db) as keep:
            tasks.start_soon(in_thread, follow)
            await keep.pause("flow", by="ann")
            await until_paused.wait()
    assert heard[0] == "create_workflow"


async def test_who_follows_and_goes_away_is_forgotten_although_nothing_happens(tmp_path: Path) -> None:
    async with served(tmp_path / "keep.db", Patience(connections_max=1)) as db:
        client = await in_thread(partial(talk, db))
        follow = client.follow(Follow(after=0))
        await in_thread(partial(next, follow))
        busy = await in_thread(partial(say, db, HELLO))
        assert busy["error"]["words"] == "Too many are talking to this runtime; try again."
        client.close()
        await until_alone(db)


# Who misbehaves.

GARBAGE = {
    "no JSON": b"hello\n",
    "no text": b"\xff\xfe\x00\n",
    "no object": b"[1]\n",
    "an empty line": b"\n",
    "an unknown request": b'{"v":1,"do":"burn"}\n',
    "an unknown field": b'{"v":1,"do":"hello","and":1}\n',
    "a wrong type": b'{"v":1,"do":"pause","workflow":7}\n',
    "an unknown verdict": b'{"v":1,"do":"resolve","mutation_id":"m","by":"a","verdict":"perhaps"}\n',
    "another version": b'{"v":2,"do":"hello"}\n',
    "deep nesting": b'{"v":1,"do":"publish","payload":' + b"[" * 200_000 + b"\n",
    "too much": b"x" * (protocol.REQUEST_BYTES_MAX + 1),
}


async def test_garbage_is_answered_and_hurts_nobody(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    async with controlled(db):
        for what, data in GARBAGE.items():
            said = await in_thread(partial(say, db, data))
            assert said["error"]["kind"] == "request", what
        assert (await in_thread(lambda: ask(db, Hello()))).pid == os.getpid()


async def test_who_goes_away_in_the_middle_hurts_nobody(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"

    def leave(data: bytes) -> None:
        with connect(place_of(db), os.getuid(), timeout_s=20) as connection:
            connection.sendall(data)

    async with controlled(db):
        for data in (b"", b'{"v":1,', b'{"v":1,"do":"follow","after":0}\n', b'{"v":1,"do":"hello"}\n'):
            for _ in range(5):
                await in_thread(partial(leave, data))
        assert (await in_thread(lambda: ask(db, Hello()))).pid == os.getpid()


async def test_who_says_nothing_is_cut_off(tmp_path: Path) -> None:
    async with served(tmp_path / "keep.db", Patience(request_s=0.05)) as db:

        def wait() -> bytes:
            with connect(place_of(db), os.getuid(), timeout_s=20) as connection:
                connection.sendall(b'{"v":1,')
                return connection.recv(1)

        assert await in_thread(wait) == b""
        assert (await in_thread(lambda: ask(db, Hello()))).pid == os.getpid()


async def test_who_does_not_listen_is_cut_off(tmp_path: Path) -> None:
    def say_much(db: Path) -> None:
        for _ in range(10):
            ask(db, Pause(workflow="flow", by="x" * 50_000))
            ask(db, Resume(workflow="flow", by="x" * 50_000))

    async with served(tmp_path / "keep.db", Patience(entry_s=0.05, connections_max=1)) as db:
        await in_thread(partial(say_much, db))
        with connect(place_of(db), os.getuid(), timeout_s=20) as connection:
            connection.sendall(b'{"v":1,"do":"follow","after":0}\n')
            await until_alone(db)


LISTEN = """
import socket, sys
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("listens", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_who_listens_in_the_place_of_the_runtime_is_not_talked_to(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        db = Path(folder) / "keep.db"
        db.touch()
        command = ["/usr/bin/env", "python3", "-c", LISTEN, str(place_of(db))]
        with subprocess.Popen(
            command, user=65534, group=65534, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as impostor:
            assert impostor.stdout is not None
            impostor.stdout.readline()
            with pytest.raises(PermissionError, match="user 65534 listens there"):
                ControlClient.connect(place_of(db), db)
            os.chown(db, 65534, -1)
            mine = ControlClient.connect(place_of(db), db)
            assert mine is not None, "it is the owner's database"
            mine.close()
            impostor.communicate()


# Where it is.


HEAR = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    sys.stdout.write(connection.makefile().read())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_who_is_another_user_is_not_answered_though_the_file_lets_them_in() -> None:
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "keep.db"
        async with controlled(db):
            # As if somebody had opened it for all: the system says who is at the other end.
            db.parent.chmod(0o755)
            place_of(db).chmod(0o666)
            command = ["/usr/bin/env", "python3", "-c", HEAR, str(place_of(db))]
            done = await anyio.run_process(command, user=65534, group=65534)
            [said] = [json.loads(line) for line in done.stdout.splitlines()]
            assert said["error"]["words"] == "User 65534 may not talk to this runtime."
            assert "answer" not in said


async def test_the_socket_is_closed_to_others_and_gone_afterwards(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    async with controlled(db):
        assert stat.S_IMODE(place_of(db).stat().st_mode) == 0o600
    assert not place_of(db).exists()
    assert [name for name in os.listdir(tmp_path) if name.endswith(".sock")] == []  # noqa: PTH208


async def test_the_socket_of_a_dead_runtime_is_replaced(tmp_path: Path) -> None:
    db = tmp_path / "keep.db"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place_of(db)))
    with pytest.raises(NoRuntimeThere):
        connect(place_of(db), os.getuid(), timeout_s=1)
    async with controlled(db):
        assert (await in_thread(lambda: ask(db, Hello()))).pid == os.getpid()


async def test_a_file_or_a_living_socket_at_its_place_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(ControlUnavailable, match="is a file, not a socket"):
        async with keep_actors.open(tmp_path / "keep.db", sandbox="thread", control=file):
            pass
    assert file.read_text() == "precious"
    async with keep_actors.open(tmp_path / "a.db", sandbox="thread", control=tmp_path / "socket"):
        with pytest.raises(ControlUnavailable, match="Another runtime listens"):
            async with keep_actors.open(tmp_path / "b.db", sandbox="thread", control=tmp_path / "socket"):
                pass
        assert (tmp_path / "socket").exists()


async def test_a_path_that_is_too_long_for_a_socket_works_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120) / ("e" * 120)
    folder.mkdir(parents=True)
    db = folder / ("f" * 120 + ".db")
    async with controlled(db):
        assert (await in_thread(lambda: ask(db, Hello()))).pid == os.getpid()
    assert not place_of(db).exists()


async def test_a_folder_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(ControlUnavailable, match=r"cannot be created at .*No such file or directory"):
        async with keep_actors.open(tmp_path / "keep.db", sandbox="thread", control=tmp_path / "no" / "socket"):
            pass


async def test_a_database_in_memory_needs_to_be_told_where(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="say where: control=PATH"):
        async with keep_actors.open(":memory:", sandbox="thread", control=True):
            pass
    async with keep_actors.open(":memory:", sandbox="thread", control=tmp_path / "socket"):
        assert (tmp_path / "socket").is_socket()


async def test_without_being_asked_for_there_is_none(tmp_path: Path) -> None:
    async with keep_actors.open(tmp_path / "keep.db", sandbox="thread"):
        assert not place_of(tmp_path / "keep.db").exists()


async def test_what_the_block_raises_leaves_it_as_it_is_with_a_socket_too(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        async with controlled(tmp_path / "keep.db"):
            raise KeyError
