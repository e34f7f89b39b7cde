"""The moment of the COMMIT: what fails before it did not happen, what fails in it is unknown until it is looked up."""

import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

import anyio
import psycopg
import pytest

from keep_actors.connectors import Applied, CallOutcome, DidNotHappen, Happened, NotApplied, Unknown
from keep_actors.services.sql import SqlSettings
from keep_actors.testing.certification.faults import Act, Fault, Way
from keep_actors.testing.certification.proxy import Proxy
from keep_storage.model import FailureClass
from tests.services.servers.postgres import PostgresServer
from tests.services.sql.worlds import PostgresWorld, SqliteWorld, World, opened

pytestmark = pytest.mark.anyio

ANN = {"id": "ann", "name": "Ann"}
ANN_ROW = '{"id":"ann","name":"Ann"}'
COMMIT = b"COMMIT\0"


def is_transient(outcome: CallOutcome) -> bool:
    return isinstance(outcome, DidNotHappen) and outcome.cls is FailureClass.TRANSIENT


def comes(world: World, query: str) -> None:
    """Ask until there is an answer. For a thread."""
    until = time.monotonic() + 5
    while not world.run(query):
        assert time.monotonic() < until, query


# The network.


@asynccontextmanager
async def proxied(postgres: PostgresWorld, server: PostgresServer) -> AsyncIterator[tuple[SqlSettings, Proxy]]:
    """Settings for a way to the server that can be disturbed."""
    async with Proxy.to(("127.0.0.1", server.port)) as proxy:
        through = PostgresWorld(postgres.url.replace(str(server.port), str(proxy.address[1])), postgres.schema)
        yield through.settings(), proxy


@pytest.mark.parametrize("act", [Act.CUT, Act.RESET])
@pytest.mark.parametrize("statement", [b"pg_advisory_xact_lock", b"INSERT INTO", b"keep_calls"])
async def test_a_connection_that_is_lost_before_the_commit_did_nothing(
    postgres: PostgresWorld, server: PostgresServer, act: Act, statement: bytes
) -> None:
    async with proxied(postgres, server) as (settings, proxy), opened(settings) as calls:
        for on in (Way.REQUESTS, Way.ANSWERS):
            proxy.inject(Fault(act=act, on=on, pattern=statement))
            assert is_transient(await calls.mutate("insertPeople", ANN))
            proxy.clear()
        assert await calls.look("insertPeople", ANN) == NotApplied()
    assert postgres.run("SELECT * FROM people") == []


@pytest.mark.parametrize(("on", "verdict"), [(Way.REQUESTS, NotApplied()), (Way.ANSWERS, Applied(ANN_ROW))])
async def test_a_connection_that_is_lost_in_the_commit_is_unknown_until_it_is_looked_up(
    postgres: PostgresWorld, server: PostgresServer, on: Way, verdict: object
) -> None:
    async with proxied(postgres, server) as (settings, proxy), opened(settings) as calls:
        proxy.inject(Fault(act=Act.CUT, on=on, pattern=COMMIT))
        assert isinstance(await calls.mutate("insertPeople", ANN), Unknown)
        proxy.clear()
        assert await calls.look("insertPeople", ANN) == verdict
        assert await calls.mutate("insertPeople", ANN, attempt=2) == Happened(ANN_ROW)
    assert postgres.run("SELECT * FROM people") == [("ann", "Ann")]


# The server.

SLOW = (
    "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(20); RETURN NULL; END $$",
    "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON people DEFERRABLE INITIALLY DEFERRED"
    " FOR EACH ROW EXECUTE FUNCTION slow()",
)
"""A COMMIT that takes 20 seconds."""


async def test_a_server_that_is_shut_down_in_the_commit_leaves_it_unknown(postgres: PostgresWorld) -> None:
    for statement in SLOW:
        postgres.run(statement)
    found: list[CallOutcome] = []
    async with opened(postgres.settings()) as calls, anyio.create_task_group() as tasks:

        async def insert() -> None:
            found.append(await calls.mutate("insertPeople", ANN))

        tasks.start_soon(insert)
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event = 'PgSleep'"
        await anyio.to_thread.run_sync(comes, postgres, end)
    assert isinstance(found[0], Unknown)
    postgres.run("DROP TRIGGER slow ON people")
    async with opened(postgres.settings()) as calls:
        assert await calls.look("insertPeople", ANN) == NotApplied()


async def test_a_commit_that_the_database_refuses_did_not_happen(postgres: PostgresWorld) -> None:
    postgres.run("CREATE TABLE parents (id text PRIMARY KEY)")
    postgres.run("ALTER TABLE people ADD FOREIGN KEY (name) REFERENCES parents DEFERRABLE INITIALLY DEFERRED")
    async with opened(postgres.settings()) as calls:
        outcome = await calls.mutate("insertPeople", ANN)
        assert isinstance(outcome, DidNotHappen)
        assert outcome.cls is FailureClass.PRECONDITION
        assert "Ann" not in outcome.message, "no value of a row is in an error"
        assert await calls.look("insertPeople", ANN) == NotApplied()


async def test_a_commit_that_takes_too_long_is_ended_and_waited_for_by_whoever_looks(postgres: PostgresWorld) -> None:
    """PostgreSQL has no time limit for it: the connector ends it, and the lock of the call shows that it has ended."""
    for statement in SLOW:
        postgres.run(statement)
    async with opened(postgres.settings(lock_timeout_ms=4_000)) as calls:
        assert isinstance(await calls.mutate("insertPeople", ANN, timeout_ms=300), Unknown)
        assert await calls.look("insertPeople", ANN) == NotApplied()
    assert postgres.run("SELECT * FROM people") == []


# Locks, and a host that no longer waits.


@contextmanager
def locking(world: World) -> Iterator[None]:
    """Keep others from changing people."""
    if isinstance(world, SqliteWorld):
        with closing(sqlite3.connect(world.file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
    elif isinstance(world, PostgresWorld):
        with psycopg.connect(world.url) as other:
            other.execute(f"LOCK TABLE {world.schema}.people".encode())
            yield


async def test_a_lock_of_another_program_is_waited_for_within_bounds(world: World) -> None:
    async with opened(world.settings(lock_timeout_ms=200)) as calls:
        with locking(world):
            assert is_transient(await calls.mutate("insertPeople", ANN))
        assert await calls.look("insertPeople", ANN) == NotApplied()
        assert await calls.mutate("insertPeople", ANN, attempt=2) == Happened(ANN_ROW)


async def test_a_reader_of_sqlite_in_the_moment_of_the_commit_leaves_nothing_behind(sqlite: SqliteWorld) -> None:
    """The COMMIT is refused, and its transaction is still open: it must not come true with the next one."""
    async with opened(sqlite.settings(lock_timeout_ms=200)) as calls:
        with closing(sqlite3.connect(sqlite.file, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM people").fetchall()
            assert is_transient(await calls.mutate("insertPeople", ANN))
        assert await calls.look("insertPeople", ANN) == NotApplied()
        assert isinstance(await calls.mutate("insertPeople", {"id": "bob", "name": "Bob"}, "k2"), Happened)
    assert sqlite.run("SELECT id FROM people") == [("bob",)]


async def test_a_host_that_no_longer_waits_interrupts_the_call_and_nothing_comes_later(world: World) -> None:
    async with opened(world.settings(lock_timeout_ms=20_000, timeout_ms=20_000)) as calls:
        with locking(world):
            began = anyio.current_time()
            assert is_transient(await calls.mutate("insertPeople", ANN, timeout_ms=150))
            assert anyio.current_time() - began < 3
            if isinstance(world, PostgresWorld):
                nobody_waits = "SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
                await anyio.to_thread.run_sync(comes, world, nobody_waits)
        assert await calls.look("insertPeople", ANN) == NotApplied()
    assert world.run("SELECT * FROM people") == []
