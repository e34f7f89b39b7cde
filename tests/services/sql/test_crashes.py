"""PostgreSQL killed with SIGKILL before and after it had a COMMIT, and started again on the same files."""

import os
import signal
from contextlib import ExitStack

import anyio
import psycopg
import pytest

from keep_actors.connectors import Applied, CallOutcome, Happened, NotApplied, Unknown
from keep_actors.testing.certification.faults import Act, Fault, Way
from keep_actors.testing.certification.proxy import Proxy
from tests.services.servers.postgres import PostgresServer, postgres_data, programs, serving_postgres
from tests.services.sql.conftest import PEOPLE
from tests.services.sql.worlds import PostgresWorld, opened

pytestmark = pytest.mark.anyio

ANN = {"id": "ann", "name": "Ann"}
ANN_ROW = '{"id":"ann","name":"Ann"}'
CASES = {"before it had the commit": (Way.REQUESTS, NotApplied()), "after it": (Way.ANSWERS, Applied(ANN_ROW))}


def world_of(server: PostgresServer, port: int | None = None) -> PostgresWorld:
    return PostgresWorld(server.url.replace(str(server.port), str(port or server.port)), "public")


@pytest.mark.parametrize("case", CASES)
async def test_a_server_that_is_killed_leaves_one_effect_or_none_and_it_is_known_which(case: str) -> None:
    if programs() is None and not os.environ.get("CI"):
        pytest.skip("PostgreSQL is not installed")
    on, verdict = CASES[case]
    with ExitStack() as stack:
        data = stack.enter_context(postgres_data())
        with serving_postgres(data) as first:
            with psycopg.connect(first.url) as connection:
                connection.execute(PEOPLE.encode())
            async with Proxy.to(("127.0.0.1", first.port)) as proxy:
                settings = world_of(first, proxy.address[1]).settings(schema="")
                async with opened(settings) as calls:
                    found: list[CallOutcome] = []
                    proxy.inject(Fault(act=Act.HOLD, on=on, pattern=b"COMMIT\0"))

                    async def insert() -> None:
                        found.append(await calls.mutate("insertPeople", ANN))

                    with anyio.fail_after(10):
                        async with anyio.create_task_group() as tasks:
                            tasks.start_soon(insert)
                            await proxy.reached()
                            os.kill(first.pid, signal.SIGKILL)
                            proxy.drop()
                    assert isinstance(found[0], Unknown)
        with serving_postgres(data) as second:
            async with opened(world_of(second).settings(schema="")) as calls:
                assert await calls.look("insertPeople", ANN) == verdict
                assert await calls.mutate("insertPeople", ANN, attempt=2) == Happened(ANN_ROW)
            assert world_of(second).run("SELECT * FROM people") == [("ann", "Ann")]
            assert world_of(second).run("SELECT count(*) FROM keep_calls") == [(1,)]
