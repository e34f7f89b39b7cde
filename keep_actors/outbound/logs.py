"""Keep secrets out of what client packages log: at DEBUG they write the answers of services, which may repeat a key.

The loggers belong to the process, so this does too: from the first secret that a connector hides, every record of the
packages below passes here. Records of other loggers are left as they are.
"""

import logging
import threading
import weakref
from collections.abc import Iterable
from typing import Any, Final

from keep_actors.kernel.foreign_code import attempt
from keep_actors.outbound.redaction import redacted, redacted_error
from keep_actors.outbound.secret import Secret

PACKAGES: Final = frozenset(
    {
        *("asyncio", "client", "concurrent", "httpcore", "httpcore2", "httpx", "httpx2", "imapclient", "keep_actors"),
        *("mcp", "openpyxl", "psycopg", "urllib3"),
    }
)
"""The first part of the names of the loggers. `client` is one of the package mcp."""


def keep_out_of_logs(secrets: Iterable[Secret]) -> None:
    """Replace these in every later record of the packages, for as long as the secrets are used."""
    _HIDDEN.add(secrets)


class _Hidden:
    """The secrets of all connectors that there are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Replaced, never changed: a thread that logs reads it while another one adds.
        self._secrets: tuple[weakref.ref[Secret], ...] = ()
        self._is_installed = False

    def add(self, secrets: Iterable[Secret]) -> None:
        with self._lock:
            added = tuple(weakref.ref(each) for each in secrets)
            self._secrets = (*(each for each in self._secrets if each() is not None), *added)
            if added and not self._is_installed:
                self._install()
                self._is_installed = True

    def _install(self) -> None:
        make = logging.getLogRecordFactory()

        def checked(name: str, *args: Any, **kwargs: Any) -> logging.LogRecord:
            record = make(name, *args, **kwargs)
            if name.partition(".")[0] in PACKAGES:
                self._check(record)
            return record

        logging.setLogRecordFactory(checked)

    def _check(self, record: logging.LogRecord) -> None:
        secrets = [secret for each in self._secrets if (secret := each()) is not None]
        if not secrets:
            return
        with attempt() as tried:
            said = record.getMessage()
        if tried.error is not None:
            record.msg, record.args = f"a record of {record.name} that cannot be written", ()
            return
        safe = redacted(said, secrets)
        if safe != said:
            record.msg, record.args = safe, ()
        if record.exc_info and record.exc_info[1] is not None:
            error = redacted_error(record.exc_info[1], secrets)
            if error is not record.exc_info[1]:
                record.exc_info = (type(error), error, None)


_HIDDEN: Final = _Hidden()
