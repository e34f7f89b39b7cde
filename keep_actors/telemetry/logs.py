"""Log lines with the ids of the run they are about, as JSON if wanted. A `Secret` is recognised by its type anywhere.

The runtime logs with the standard library, below the logger `keep_actors`. Using this module is optional.
"""

import json
import logging
import math
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from keep_actors.kernel.foreign_code import attempt
from keep_actors.outbound.secret import SHOWN, Secret

_DEPTH_MAX: Final = 8
_DIGITS_MAX: Final = 300
_UNREADABLE: Final = "[unreadable]"
_IDS: Final = ("workflow_id", "run_id", "handler")
_KNOWN: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", *_IDS}


class Work(msgspec.Struct, frozen=True):
    """The workflow, run and handler that a task works for."""

    workflow_id: str = ""
    run_id: str = ""
    handler: str = ""


_NO_WORK: Final = Work()
_work: ContextVar[Work] = ContextVar("keep_actors_work", default=_NO_WORK)


def begin_work(workflow_id: str, run_id: str = "", handler: str = "") -> None:
    """Set the ids for this task and the tasks it starts. Called at the beginning of a task."""
    _work.set(Work(workflow_id, run_id, handler))


class RunFilter(logging.Filter):
    """Give every record `workflow_id`, `run_id` and `handler`, empty outside a run.

    Add it to a handler, not to a logger: a logger's filters do not see records of the loggers below it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        work = _work.get()
        for name in _IDS:
            # A value given with `extra` stays.
            if not hasattr(record, name):
                setattr(record, name, getattr(work, name))
        return True


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, ids, exception, extra. Never raises."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        line |= {name: shown(value) for name in _IDS if (value := getattr(record, name, ""))}
        with attempt() as tried:
            if record.exc_info and record.exc_info[1] is not None:
                line["exception"] = self.formatException(record.exc_info)
            elif record.exc_text:
                line["exception"] = record.exc_text
            if record.stack_info:
                line["stack"] = record.stack_info
        if tried.error is not None:
            line["exception"] = _UNREADABLE
        if extra := {name: shown(value) for name, value in vars(record).items() if name not in _KNOWN}:
            line["extra"] = extra
        # Not msgspec, which refuses half of a surrogate pair: a log line may have one.
        return json.dumps(line)


def json_handler(stream: TextIO | None = None) -> logging.Handler:
    """Return a handler that writes JSON lines with the ids, to standard error by default."""
    handler = logging.StreamHandler(stream)
    handler.addFilter(RunFilter())
    handler.setFormatter(JsonFormatter())
    return handler


def shown(value: object, above: tuple[int, ...] = ()) -> Any:
    """Return a value as JSON can have it, without secrets."""
    with attempt() as tried:
        said = _shown(value, above)
    return said if tried.error is None else _UNREADABLE


def _shown(value: object, above: tuple[int, ...]) -> Any:  # noqa: C901  # one case for each type there is
    match value:
        case Secret():
            return SHOWN
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int(value) if abs(value) < 10**_DIGITS_MAX else _UNREADABLE
        case float():
            return float(value) if math.isfinite(value) else repr(float(value))
        case bytes() | bytearray() | memoryview():
            return f"[{len(value)} bytes]"
    if id(value) in above or len(above) >= _DEPTH_MAX:
        return "…"
    above = (*above, id(value))
    if isinstance(value, Mapping):
        return {str(shown(key, above)): shown(each, above) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [shown(each, above) for each in value]
    if isinstance(value, msgspec.Struct):
        return {name: shown(getattr(value, name), above) for name in value.__struct_fields__}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: shown(getattr(value, field.name), above) for field in fields(value)}
    return repr(value)


def _message(record: logging.LogRecord) -> str:
    """Return the text of a record. A secret among its arguments has no text but `[secret]`."""
    for text in (record.getMessage, record.msg.__str__):
        with attempt() as tried:
            said: str = text()
        if tried.error is None:
            return said
    return _UNREADABLE
