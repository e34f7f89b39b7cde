"""The use of CPU and memory by a tree of processes, and by all others on the machine. From `/proc`: Linux only."""

import os
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_BUSY: Final = (0, 1, 2, 5, 6, 7)
"""The columns user, nice, system, irq, softirq and steal of `/proc/stat`."""


class Process(NamedTuple):
    """A line of `/proc/PID/stat`."""

    pid: int
    parent: int
    cpu_s: float
    """Its own CPU, and that of its children that have ended."""


def tree(root: int) -> list[Process]:
    """A process and its descendants."""
    children: defaultdict[int, list[Process]] = defaultdict(list)
    found: list[Process] = []
    for folder in Path("/proc").iterdir():
        process = _read(folder) if folder.name.isdigit() else None
        if process is not None:
            children[process.parent].append(process)
            if process.pid == root:
                found.append(process)
    for process in found:  # grows while it is read
        found.extend(children[process.pid])
    return found


def _read(folder: Path) -> Process | None:
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return None
    return Process(int(folder.name), int(fields[1]), sum(map(int, fields[11:15])) / _TICKS_PER_S)


def is_alive(pid: int) -> bool:
    """False for a process that has ended, also if its parent has not yet asked how."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def cpu_s(root: int) -> float:
    """CPU seconds of a tree so far."""
    return sum(process.cpu_s for process in tree(root))


def pss_bytes(root: int) -> int:
    """Memory of a tree: pages shared by several processes are counted once."""
    total = 0
    for process in tree(root):
        try:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def busy_s() -> float:
    """CPU seconds that all processors were busy since the start of the machine."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(fields[column]) for column in _BUSY) / _TICKS_PER_S


class Load(NamedTuple):
    """A moment: the CPU used by a tree, by this process, and by all."""

    tree_s: float
    harness_s: float
    busy_s: float

    @classmethod
    def now(cls, root: int) -> "Load":
        times = os.times()
        return cls(cpu_s(root), times.user + times.system, busy_s())

    def foreign_cores(self, earlier: "Load", seconds: float) -> float:
        """The cores that others kept busy on average since an earlier moment."""
        ours = self.tree_s - earlier.tree_s + self.harness_s - earlier.harness_s
        return max(0.0, self.busy_s - earlier.busy_s - ours) / seconds
