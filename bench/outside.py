"""The file outside any database in which external effects are counted.

Imports only the standard library: the drivers of peers run it in environments of their own.
"""

import os
from pathlib import Path


class PaymentFile:
    """The payment service. It does not deduplicate requests."""

    def __init__(self, path: Path, *, synced: bool = True) -> None:
        self._path = path
        self._synced = synced

    def pay(self, order: str, key: str) -> None:
        """Append a line for the effect, and sync it unless only a killed process must not lose it."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, f"{order} {key}\n".encode())
            if self._synced:
                os.fsync(file)
        finally:
            os.close(file)

    def payments(self) -> list[str]:
        """All effects so far."""
        return self._path.read_text("utf-8").splitlines() if self._path.exists() else []

    def clear(self) -> None:
        """Forget all effects."""
        self._path.unlink(missing_ok=True)
