"""Supervised actors that run untrusted automations and never lose, repeat or guess a side effect.

What is named here is imported when it is first used: a command line that only prints its version, or a connector's
module that only wants `Connector`, does not load a runtime.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keep_actors.api.commands import Answered, Deployed
    from keep_actors.api.keep import Keep
    from keep_actors.api.verdicts import ResultRefused
    from keep_actors.authoring.admission import DeployRefused
    from keep_actors.connectors import Connector, MutationCall, ReadCall, mutation, read
    from keep_actors.permissions import Grant, PermissionsNeeded
    from keep_actors.policy import Backoff, Policy
    from keep_actors.runtime.opening import open  # noqa: A004  # `keep_actors.open(...)` is how it is called
    from keep_actors.runtime.process import tune_process
    from keep_storage.errors import EventsWouldWait, Reason, Rejected

    __version__: str

__all__ = [
    "Answered",
    "Backoff",
    "Connector",
    "DeployRefused",
    "Deployed",
    "EventsWouldWait",
    "Grant",
    "Keep",
    "MutationCall",
    "PermissionsNeeded",
    "Policy",
    "ReadCall",
    "Reason",
    "Rejected",
    "ResultRefused",
    "mutation",
    "open",
    "read",
    "tune_process",
]

_HOME = {
    "Answered": "keep_actors.api.commands",
    "Backoff": "keep_actors.policy",
    "Connector": "keep_actors.connectors",
    "DeployRefused": "keep_actors.authoring.admission",
    "Deployed": "keep_actors.api.commands",
    "EventsWouldWait": "keep_storage.errors",
    "Grant": "keep_actors.permissions",
    "Keep": "keep_actors.api.keep",
    "MutationCall": "keep_actors.connectors",
    "PermissionsNeeded": "keep_actors.permissions",
    "Policy": "keep_actors.policy",
    "ReadCall": "keep_actors.connectors",
    "Reason": "keep_storage.errors",
    "Rejected": "keep_storage.errors",
    "ResultRefused": "keep_actors.api.verdicts",
    "mutation": "keep_actors.connectors",
    "open": "keep_actors.runtime.opening",
    "read": "keep_actors.connectors",
    "tune_process": "keep_actors.runtime.process",
}
assert set(_HOME) == set(__all__), "every public name has its home"


if not TYPE_CHECKING:  # a type checker would believe that every name is there

    def __getattr__(name: str) -> object:
        if name == "__version__":
            value: object = import_module("importlib.metadata").version("keep-actors")
        elif name in _HOME:
            value = getattr(import_module(_HOME[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Found here from now on, without coming back.
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
