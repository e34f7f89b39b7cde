"""Errors that a connector raises, and errors that the host raises about a connector.

A mutation that raises a `ConnectorError` promises that the effect did not happen. After `Uncertain`, or any other
exception, the outcome is unknown.
"""

from typing import Any, ClassVar

from keep_storage.model import FailureClass


class ConnectorDefinitionError(Exception):
    """A connector class, or a set of connectors, cannot be used. The message says where and what to do."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")


class ConnectorError(Exception):
    """The call failed and changed nothing. Raise one of the subclasses: each decides what happens next."""

    failure_class: ClassVar[FailureClass] = FailureClass.INTERNAL
    retry_after_ms: int | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.failure_class is FailureClass.INDETERMINATE:
            what = "promises that nothing happened, so it cannot be indeterminate; raise Uncertain instead"
            raise ConnectorDefinitionError(cls.__name__, what)


class Transient(ConnectorError):
    """The call may work later: the service is down, overloaded or limits the rate."""

    failure_class = FailureClass.TRANSIENT

    def __init__(self, message: str, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class AuthRequired(ConnectorError):
    """The credentials are missing, expired or revoked. A person has to sign in."""

    failure_class = FailureClass.AUTH


class PermissionDenied(ConnectorError):
    """The credentials are valid, but not allowed to do this. A person has to grant it."""

    failure_class = FailureClass.PERMISSION


class PreconditionFailed(ConnectorError):
    """The outside is not as the call assumes: the sheet is gone, the account is closed. A person decides."""

    failure_class = FailureClass.PRECONDITION


class InvalidCall(ConnectorError):
    """The script asked for something that makes no sense. The script has to be repaired."""

    failure_class = FailureClass.LOGIC


class ConnectorBug(ConnectorError):
    """The connector has a bug, and detected it."""

    failure_class = FailureClass.INTERNAL


class Uncertain(Exception):
    """The effect may have happened or not. Only mutations raise it."""


class ParamsError(Exception):
    """The parameters do not fit the method. `path` is as in the script: `values[2]`, or empty."""

    failure_class: ClassVar[FailureClass] = FailureClass.LOGIC

    def __init__(self, method: str, path: str, message: str) -> None:
        super().__init__(": ".join(part for part in (method, path, message) if part))
        self.method = method
        self.path = path
        self.message = message


class ConnectorLoadError(Exception):
    """A connector could not be loaded by name. The message says which and why."""


class ConnectorNotOpened(Exception):
    """A connector's `open` failed, so the runtime did not start. `__cause__` is the error."""
