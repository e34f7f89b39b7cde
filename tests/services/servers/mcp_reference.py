"""The reference servers of the Model Context Protocol, from npm and PyPI. `.ci/run` installs them.

`KEEP_MCP_SERVERS` names the folder: its `node_modules` has those of npm, its `mcp` is a virtual environment.
"""

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(os.environ.get("KEEP_MCP_SERVERS") or Path(__file__).parents[3] / ".ci" / "tools")
_PROGRAMS: Final = {
    "everything": (FOLDER / "node_modules" / ".bin" / "mcp-server-everything", "stdio"),
    "filesystem": (FOLDER / "node_modules" / ".bin" / "mcp-server-filesystem",),
    "time": (FOLDER / "mcp" / "bin" / "mcp-server-time", "--local-timezone", "UTC"),
    "git": (FOLDER / "mcp" / "bin" / "mcp-server-git",),
}


def reference_server(name: str) -> list[str]:
    """The command of a server. Skips the test without it, but never in CI."""
    program, *arguments = _PROGRAMS[name]
    if not Path(program).exists() or shutil.which("node") is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{program} is missing, and CI has to have it: see .ci/run")
        pytest.skip(f"no reference server {name}: see .ci/run, and set KEEP_MCP_SERVERS")
    return [str(program), *map(str, arguments)]
