"""The audit: a vulnerability is a failure, and not having been able to ask is neither that nor a clean bill."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.supply.audit import needed
from tests.supply.bom import ROOT

REPORTS = {
    "a vulnerability": (
        '{"dependencies":[{"name":"anyio","version":"4.8","vulns":[]},'
        '{"name":"httpx","version":"0.1","vulns":[{"id":"CVE-1","fix_versions":["0.2"]}]}],"fixes":[]}',
        1,
        "Audit FAILED:\n  httpx 0.1: CVE-1, fixed in 0.2\n",
    ),
    "one beside packages that were left out": (
        '{"dependencies":[{"name":"anyio","skip_reason":"not found"},'
        '{"name":"httpx","version":"0.1","vulns":[{"id":"CVE-1","fix_versions":[]}]}],"fixes":[]}',
        1,
        "Audit FAILED:\n  httpx 0.1: CVE-1, not fixed yet\n",
    ),
    "nothing known": (
        '{"dependencies":[{"name":"anyio","version":"4.8","vulns":[]}],"fixes":[]}',
        0,
        "Audit clean: 1 packages, no known vulnerability.\n",
    ),
    "nobody knew the package": (
        '{"dependencies":[{"name":"anyio","skip_reason":"not found"}],"fixes":[]}',
        0,
        "Audit NOT DONE for 1 of 1 packages, which the service does not know: anyio\n",
    ),
    "no report": (
        None,
        0,
        "Audit NOT DONE: no service that knows of vulnerabilities could be reached.\n",
    ),
    "half a report": (
        '{"dependencies":[{"na',
        0,
        "Audit NOT DONE: no service that knows of vulnerabilities could be reached.\n",
    ),
}


@pytest.mark.parametrize("what", REPORTS)
def test_a_vulnerability_fails_and_silence_is_called_silence(tmp_path: Path, what: str) -> None:
    text, code, words = REPORTS[what]
    report = tmp_path / "report.json"
    if text is not None:
        report.write_text(text)
    command = [sys.executable, "-m", "tests.supply.audit", "judge", str(report)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, words)


def test_all_that_a_user_installs_is_asked_about_and_nothing_else() -> None:
    names = {line.partition("==")[0] for line in needed()}
    assert {"anyio", "idna", "wasmtime", "httpx", "certifi", "opentelemetry-api"} <= names
    assert not {"pytest", "sphinx", "trio", "keep-actors"} & names
