"""The execution model as atomic operations on a database. Synchronous; knows no actors and no JavaScript."""

from keep_storage import operations, reads
from keep_storage.errors import (
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
from keep_storage.ids import Ids, Millis
from keep_storage.manager import ExecutionModelManager
from keep_storage.operations import Operation, Together
from keep_storage.store import Store, wall_clock

__all__ = [
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
