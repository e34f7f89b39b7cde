"""The answer to everything that chooses the script of a workflow."""

import msgspec


class Deployed(msgspec.Struct, frozen=True):
    """The version of a workflow that runs now."""

    workflow_id: str
    name: str
    version: str
    """`major.minor`."""
