"""Settings of the Python interpreter for a process that does little else than run workflows."""

import gc
import sys
from typing import Final

_SWITCH_S: Final = 0.0005
"""The time after which a thread hands over to another one that waits. Python's default is 0.005."""
_OBJECTS_BETWEEN_COLLECTIONS: Final = 10_000


def tune_process() -> None:
    """Tune the interpreter of this process for many workflows. Call it once, when the runtime is open.

    `keep run` does so. A library must not do it for the service that embeds it: it concerns all code in the process.
    The thread that writes hands over at each statement, and would wait for the event loop's 5 ms every time. Objects
    that are there now are not looked through again by the garbage collector, and it runs less often.
    """
    sys.setswitchinterval(_SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
