"""The execution model as atomic operations on a database. Synchronous; knows no actors and no JavaScript.

What is named here is imported when it is first used: who only reads a file does not load what changes one.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keep_storage import operations, reads
    from keep_storage.errors import (
        EventsWouldWait,
        Reason,
        Rejected,
        StorageCorrupt,
        StorageError,
        StorageForeign,
        StorageLost,
        StorageOwned,
        StorageTooNew,
        StorageUnavailable,
    )
    from keep_storage.ids import Ids, Millis, wall_clock
    from keep_storage.manager import ExecutionModelManager
    from keep_storage.operations import Operation, Together
    from keep_storage.store import Store

__all__ = [
    "EventsWouldWait",
    "ExecutionModelManager",
    "Ids",
    "Millis",
    "Operation",
    "Reason",
    "Rejected",
    "StorageCorrupt",
    "StorageError",
    "StorageForeign",
    "StorageLost",
    "StorageOwned",
    "StorageTooNew",
    "StorageUnavailable",
    "Store",
    "Together",
    "operations",
    "reads",
    "wall_clock",
]

_HOME = {
    "EventsWouldWait": "errors",
    "ExecutionModelManager": "manager",
    "Ids": "ids",
    "Millis": "ids",
    "Operation": "operations",
    "Reason": "errors",
    "Rejected": "errors",
    "StorageCorrupt": "errors",
    "StorageError": "errors",
    "StorageForeign": "errors",
    "StorageLost": "errors",
    "StorageOwned": "errors",
    "StorageTooNew": "errors",
    "StorageUnavailable": "errors",
    "Store": "store",
    "Together": "operations",
    "wall_clock": "ids",
}
_MODULES = ("operations", "reads")
assert {*_HOME, *_MODULES} == set(__all__), "every public name has its home"


if not TYPE_CHECKING:  # a type checker would believe that every name is there

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"keep_storage.{name}")
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"keep_storage.{_HOME[name]}"), name)
        # Found here from now on, without coming back.
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
