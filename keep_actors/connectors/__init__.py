"""Connectors: the Python side of `ctx.gmail.send({...})`.

To write one, derive from `Connector`, decorate typed async methods with `read` and `mutation`, and raise the errors
below. The host makes a `Catalog` and calls its `Method`s, which return every outcome as a value.
"""

from keep_actors.connectors.calls import MutationCall, ReadCall
from keep_actors.connectors.catalog import Catalog
from keep_actors.connectors.connector import Connector
from keep_actors.connectors.declaration import Options, Risk, Similarity, mutation, read
from keep_actors.connectors.discovery import discover, load
from keep_actors.connectors.errors import (
    AuthRequired,
    ConnectorBug,
    ConnectorDefinitionError,
    ConnectorError,
    ConnectorLoadError,
    ConnectorNotOpened,
    InvalidCall,
    ParamsError,
    PermissionDenied,
    PreconditionFailed,
    Transient,
    Uncertain,
)
from keep_actors.connectors.method import Method
from keep_actors.connectors.offered import Offered, Param
from keep_actors.connectors.outcomes import (
    Answer,
    Applied,
    CallOutcome,
    DidNotHappen,
    Failed,
    Happened,
    NotApplied,
    ReadOutcome,
    Retry,
    Unknown,
    Verdict,
)
from keep_actors.connectors.params import Params

MutationOutcome = CallOutcome
"""Earlier name of `CallOutcome`; the storage has another `MutationOutcome`."""

__all__ = [
    "Answer",
    "Applied",
    "AuthRequired",
    "CallOutcome",
    "Catalog",
    "Connector",
    "ConnectorBug",
    "ConnectorDefinitionError",
    "ConnectorError",
    "ConnectorLoadError",
    "ConnectorNotOpened",
    "DidNotHappen",
    "Failed",
    "Happened",
    "InvalidCall",
    "Method",
    "MutationCall",
    "MutationOutcome",
    "NotApplied",
    "Offered",
    "Options",
    "Param",
    "Params",
    "ParamsError",
    "PermissionDenied",
    "PreconditionFailed",
    "ReadCall",
    "ReadOutcome",
    "Retry",
    "Risk",
    "Similarity",
    "Transient",
    "Uncertain",
    "Unknown",
    "Verdict",
    "discover",
    "load",
    "mutation",
    "read",
]
