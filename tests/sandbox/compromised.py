"""A worker that was taken over: in the jail as any other, but it runs what the test tells it, as Python.

The zygote is a fresh interpreter that looks where the host looks, so a `sitecustomize` on the host's path is how it
is replaced. The "source" of an invocation is then Python, run by the worker when the invocation arrives. In a script
that a runtime takes it is a comment: between `/*python` and `*/`.
"""

from pathlib import Path

SITECUSTOMIZE = """
import ctypes, gc, mmap, os, resource, signal, socket, subprocess, sys, time, threading
import keep_sandbox.worker
from keep_sandbox import outcomes, protocol
from keep_sandbox.outcomes import Kind, Value
from keep_sandbox.protocol import encode

libc = ctypes.CDLL(None, use_errno=True)
# Once before the jail, so that nothing is loaded for the first time inside it.
libc.getpid()
libc.syscall(39)


class Compromised(keep_sandbox.worker._Worker):
    def _receive(self, frame):
        if not isinstance(frame, protocol.RunFrame):
            return super()._receive(frame)
        code = self._sources[frame.script]
        if "/*python" in code:
            code = code.partition("/*python")[2].partition("*/")[0]
        exec(compile(code, "<attack>", "exec"), {**globals(), "worker": self, "frame": frame, "say": self._write})


keep_sandbox.worker._Worker = Compromised
"""


def install(directory: Path) -> str:
    """Write the module that takes workers over, and return the directory to be put on the path."""
    (directory / "sitecustomize.py").write_text(SITECUSTOMIZE, "utf-8")
    return str(directory)
