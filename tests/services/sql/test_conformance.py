"""The rules for every connector, on both databases."""

import pytest

from keep_actors.services.sql import Sql
from keep_actors.testing.connector_suite import check_connector
from tests.services.sql.worlds import World

pytestmark = pytest.mark.anyio


async def test_a_runtime_can_rely_on_it(world: World) -> None:
    world.run("INSERT INTO people VALUES ('ann', 'Ann'), ('bob', 'Bob')")
    query = {"sql": "SELECT id FROM people WHERE id = :id", "columns": {"id": "text"}, "parameters": {"id": "text"}}
    report = await check_connector(
        Sql(world.settings(queries={"found": query})),
        examples={
            "insertPeople": {"id": "cleo", "name": "Cleo"},
            "updatePeople": {"id": "ann", "name": "Anna"},
            "deletePeople": {"id": "bob"},
            "getPeople": {"id": "ann"},
            "found": {"id": "ann"},
        },
    )
    assert not report.findings, report
