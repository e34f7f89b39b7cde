"""A script as it is stored and as it runs: its source, its declaration, and the methods it names."""

from collections.abc import Mapping

import msgspec

from keep_sandbox.declaration import Declaration, Inspection, Schedule
from keep_sandbox.invocation import MethodKind
from keep_storage.model import Json, ScriptVersion


class Script(msgspec.Struct, frozen=True):
    """A version of a workflow's script, ready to be run."""

    version_id: str
    source: str
    declaration: Declaration
    uses: list[str]
    """The connector methods that it names."""
    methods: Mapping[str, MethodKind] = {}
    """All that there were when it was deployed: it may call them without naming them where inspection sees it."""

    def schedule_of(self, handler: str) -> Schedule | None:
        """When a producer or a job runs."""
        declared = self.declaration.producers.get(handler) or self.declaration.jobs[handler]
        return declared.schedule

    @classmethod
    def of(cls, version: ScriptVersion) -> "Script":
        """A version as it is stored."""
        declared = msgspec.json.decode(version.declaration, type=StoredDeclaration)
        return cls(version.id, version.source, declared.declaration, declared.uses, declared.methods)


class StoredDeclaration(msgspec.Struct, frozen=True):
    """The part of an inspection that is stored beside the source."""

    declaration: Declaration
    uses: list[str]
    methods: Mapping[str, MethodKind] = {}
    """See `Script`. Versions of older files do not have it."""

    @classmethod
    def of(cls, inspection: Inspection, methods: Mapping[str, MethodKind]) -> "StoredDeclaration":
        """The declaration of a script that loads, with the methods that exist."""
        assert inspection.declaration is not None, "a script that does not load is not kept"
        return cls(inspection.declaration, [use.name for use in inspection.uses], methods)

    def encoded(self) -> Json:
        return msgspec.json.encode(self).decode()
