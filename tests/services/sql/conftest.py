"""Databases for the tests of `sql`: one server for all of them, a schema or a file for each."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.services.servers.postgres import PostgresServer, programs, running_postgres
from tests.services.sql.worlds import PostgresWorld, SqliteWorld, World

PEOPLE = "CREATE TABLE people (id text PRIMARY KEY, name text)"
_SCHEMAS = count()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL for all tests here."""
    if programs() is None and not os.environ.get("CI"):
        pytest.skip("PostgreSQL is not installed")
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres(server: PostgresServer) -> PostgresWorld:
    """A schema with an empty table `people`."""
    world = PostgresWorld(server.url, f"world_{next(_SCHEMAS)}")
    with psycopg.connect(server.url) as connection:
        connection.execute(f"CREATE SCHEMA {world.schema}".encode())
    world.run(PEOPLE)
    return world


@pytest.fixture
def sqlite(tmp_path: Path) -> SqliteWorld:
    """A file with an empty table `people`."""
    world = SqliteWorld(tmp_path / "crm.db")
    world.run(PEOPLE)
    return world


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest) -> World:
    """Each of both."""
    found: World = request.getfixturevalue(request.param)
    return found
