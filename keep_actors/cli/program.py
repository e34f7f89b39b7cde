"""What Python itself writes to the standard error of `keep`: log lines, warnings and tracebacks, in plain text.

Exceptions of connectors have words of services in them, and a log line of theirs may quote a mail.
"""

import logging
import sys
import traceback
from types import TracebackType

from keep_actors.cli.terminal import plain_block, show


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return plain_block(super().format(record))


def speak_plainly() -> None:
    """Spell out what a terminal would obey or hide. A connector that sets up logging of its own is not changed."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Plain())
    logging.captureWarnings(True)
    sys.excepthook = _told


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    show(plain_block("".join(traceback.format_exception(kind, error, trace)).rstrip()), err=True)
