"""Supervised actors that run untrusted automations and never lose, repeat or guess a side effect."""

from importlib.metadata import version

from keep_actors.connectors import Connector, MutationCall, ReadCall, mutation, read
from keep_actors.deployment import DeployRefused
from keep_actors.keep import Deployed, Keep
from keep_actors.policy import Backoff, Policy
from keep_actors.runtime import open  # noqa: A004  # `keep_actors.open(...)` is how it is called
from keep_storage.errors import Reason, Rejected

__version__ = version("keep-actors")

__all__ = [
    "Backoff",
    "Connector",
    "DeployRefused",
    "Deployed",
    "Keep",
    "MutationCall",
    "Policy",
    "ReadCall",
    "Reason",
    "Rejected",
    "mutation",
    "open",
    "read",
]
