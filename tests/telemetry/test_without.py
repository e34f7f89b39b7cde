"""No library is required: a process that cannot find them."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
for name in ("opentelemetry", "prometheus_client"):
    sys.modules[name] = None
import anyio
import keep_actors
from keep_actors.telemetry import OpenTelemetry, PrometheusMetrics, chosen, NO_TELEMETRY
"""

RUNS = """
from tests.runtime.fakes import Fake
from tests.runtime.world import script, world

async def main():
    async with world(Fake(), telemetry="auto") as box:
        await box.keep.deploy(script(producer="await c.fake.search({});"))
        await box.settle()
        print([run.status for run in await box.keep.runs("flow")])

assert chosen("auto") is NO_TELEMETRY
anyio.run(main)
"""

ASKS = """
for wanted in (OpenTelemetry, PrometheusMetrics):
    try:
        wanted()
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [(RUNS, ["committed"]), (ASKS, ["keep-actors[telemetry]", "keep-actors[prometheus]"])],
    ids=["a runtime runs", "what is missing is named"],
)
def test_without_the_libraries(code: str, said: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(words in done.stdout for words in said)


def test_importing_the_package_loads_neither() -> None:
    code = """
import sys, keep_actors.runtime.opening, keep_actors.telemetry
print({'opentelemetry', 'prometheus_client'} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
