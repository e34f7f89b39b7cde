"""For all tests: the rings, Hypothesis without deadlines (a loaded machine is no bug), and SIGINT that interrupts."""

import gc
import signal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")

# A shell has what it starts in the background ignore this signal, and so would everything that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW: Final = (
    # Long, so that they begin first: at the end a core would have nothing to do while another is at the last of them.
    "tests/test_house.py",
    "tests/sandbox/test_soak.py",
    "tests/bench/",
    "tests/docs/",
    "tests/simulation/",
    # Processes, jails and sockets.
    "tests/cli/",
    "tests/control/",
    "tests/crash/",
    "tests/fuzz/",
    "tests/portability/",
    "tests/runtime/test_embedding.py",
    "tests/runtime/test_maintainer_over_http.py",
    "tests/runtime/test_notices_over_http.py",
    "tests/runtime/test_notices_stories.py",
    "tests/runtime/test_sigkill.py",
    "tests/runtime/test_taken_over.py",
    "tests/examples/",
    "tests/services/test_certified.py",
    "tests/services/",
    "tests/testing/certification/",
    "tests/sandbox/test_attacks.py",
    "tests/sandbox/test_compromise.py",
    "tests/runtime/test_owners_share.py",
    "tests/sandbox/test_compiled.py",
    "tests/sandbox/test_hostile_guest.py",
    "tests/sandbox/test_installation.py",
    "tests/sandbox/test_launcher.py",
    "tests/sandbox/test_lifecycle.py",
    "tests/sandbox/test_sharing.py",
    "tests/supply/",
    "tests/torture/",
    "tests/engine/",
    # Sweeps, seeds, random walks and scale.
    "tests/actors/test_always_answered.py",
    "tests/runtime/test_actor_crashes.py",
    "tests/runtime/test_no_loops.py",
    "tests/runtime/test_outage.py",
    "tests/runtime/test_phase_table.py",
    "tests/runtime/test_reconcile_crashes.py",
    "tests/runtime/test_repair_crashes.py",
    "tests/runtime/test_scale.py",
    "tests/actors/test_directory.py",
    "tests/connectors/test_connector_suite.py",
    "tests/dry_run/",
    "tests/maintenance/test_prompt.py",
    "tests/runtime/test_failures_in_runs.py",
    "tests/runtime/test_notices.py",
    "tests/runtime/test_user_actions.py",
    "tests/sandbox/test_images.py",
    "tests/sandbox/test_inspect.py",
    "tests/sandbox/test_oracle.py",
    "tests/sandbox/test_protocol.py",
    "tests/storage/test_backup.py",
    "tests/storage/test_conformance.py",
    "tests/storage/test_crafted.py",
    "tests/storage/test_disk.py",
    "tests/storage/test_migrations.py",
    "tests/storage/test_model_machine.py",
    "tests/storage/test_reasons.py",
)
"""The slow ring. Every other test is in the fast one: `pytest -m fast`."""

ROOT: Final = Path(__file__).parents[1]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the slow ring for a run of the fast one."""
    path = f"{collection_path.relative_to(ROOT)}{'/' if collection_path.is_dir() else ''}"
    return True if config.getoption("markexpr") == "fast" and path.startswith(SLOW) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say in which ring each test is, and begin with the slow ones."""
    for item in items:
        item.add_marker("slow" if item.nodeid.startswith(SLOW) else "fast")
    items.sort(key=lambda item: next((place for place, each in enumerate(SLOW) if item.nodeid.startswith(each)), 99))


def pytest_collection_finish() -> None:
    """Spare every collection of garbage the walk through thousands of tests that stay until the end."""
    gc.collect()
    gc.freeze()
