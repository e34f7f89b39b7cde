"""Settings of the interpreter, which concern a whole process: so each test has one of its own."""

import subprocess
import sys

SHOWS = "print(sys.getswitchinterval(), gc.get_threshold()[0], gc.get_freeze_count() > 1000)"


def settings(*lines: str) -> list[str]:
    code = "\n".join(("import gc, sys, keep_actors", *lines, SHOWS))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


def test_a_tuned_process_hands_over_sooner_and_collects_less_often() -> None:
    assert settings("keep_actors.tune_process()") == ["0.0005", "10000", "True"]


def test_an_open_runtime_leaves_the_process_as_it_is() -> None:
    opened = (
        "import anyio",
        "async def main():",
        "    async with keep_actors.open(':memory:', connectors=[], sandbox='thread'): pass",
        "anyio.run(main)",
    )
    assert settings(*opened) == settings()
