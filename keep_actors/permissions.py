"""Permissions of a workflow: those that a script needs, and its envelope of grants. Pure.

Each connector method needs a permission. A call outside the envelope is stopped before anything is sent; a repair
never widens it.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from keep_actors.connectors import Catalog, Method
from keep_actors.policy import Grant as Grant
from keep_actors.text.counted import counted
from keep_storage.ids import Millis
from keep_storage.model import GrantPolicy
from keep_storage.model import StoredGrant as StoredGrant
from keep_storage.operations import ClearWorkflowError, GrantPermission, GrantUse

Accepted = Literal["explicit", "declared", "all"]
"""Grants without naming them: none, all that the script names, or every method of every connector."""


_DAY_MS: Final = 86_400_000


class Needed(msgspec.Struct, frozen=True):
    """A permission that a script needs, with the methods that need it."""

    permission: str
    risk: str
    mutates: bool
    methods: list[str]


class PermissionsNeeded(Exception):
    """The script was not deployed: it needs permissions that it was not granted. `needed` is the list to accept.

    Deploy it again with `grants=[...]`, or with `grants="declared"` to accept all that it names.
    """

    def __init__(self, needed: list[Needed], why: str = "") -> None:
        lines = "\n".join([*(f"  {_line(each)}" for each in needed), *([why] if why else [])])
        super().__init__(
            f"the script needs {counted(len(needed), 'permission')} that it has not been granted:\n{lines}"
        )
        self.needed = needed


class GrantLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits of a grant, as they are stored."""

    per_run: int | None = None
    per_day: int | None = None


class Envelope:
    """The grants of one workflow's major version."""

    def __init__(self, grants: Iterable[StoredGrant]) -> None:
        self._grants = {grant.permission: grant for grant in grants}

    def __contains__(self, permission: str) -> bool:
        return permission in self._grants

    def asks_first(self, permission: str) -> bool:
        """Return True if a person has to approve each mutation."""
        return self._grants[permission].policy is GrantPolicy.ASK

    def limits(self, permission: str) -> GrantLimits:
        return msgspec.json.decode(self._grants[permission].limits, type=GrantLimits)


def use_of(envelope: Envelope, permission: str, now: Millis) -> GrantUse | None:
    """The daily limit that a call made now counts against, if its grant has one."""
    per_day = envelope.limits(permission).per_day if permission in envelope else None
    return None if per_day is None else GrantUse(permission, day_of(now), per_day)


def day_of(now: Millis) -> int:
    """The number of the day (UTC), for daily limits."""
    return now // _DAY_MS


def needed(uses: Iterable[str], catalog: Catalog) -> list[Needed]:
    """The permissions for the methods that a script names, by permission."""
    found: dict[str, list[Method]] = {}
    for name in uses:
        if (method := catalog.get(name)) is not None:
            found.setdefault(method.permission, []).append(method)
    return [
        Needed(permission, _highest(methods), any(each.kind == "mutation" for each in methods), _names(methods))
        for permission, methods in sorted(found.items())
    ]


def operations_for(workflow_id: str, major: int, grants: Iterable[Grant], by: str) -> tuple[GrantPermission, ...]:
    """The operations that store these grants."""
    return tuple(
        GrantPermission(
            workflow_id,
            major,
            each.permission,
            GrantPolicy(each.policy),
            msgspec.json.encode(GrantLimits(each.per_run, each.per_day)).decode(),
            by,
        )
        for each in grants
    )


def errors_settled_by(grants: Iterable[GrantPermission]) -> tuple[ClearWorkflowError, ...]:
    """The operations that clear an error about one of these permissions, if there is one when they are applied."""
    return tuple(
        ClearWorkflowError(each.workflow_id, each.by, "a permission was granted", each.permission) for each in grants
    )


def check_known(grants: Iterable[Grant], catalog: Catalog) -> None:
    """Raise `ValueError` for a permission that no method needs: it is a typing error."""
    known = {method.permission for method in catalog.methods.values()}
    for grant in grants:
        if grant.permission not in known:
            raise ValueError(f"no method needs the permission {grant.permission!r}; there are {sorted(known)}")


def as_grant(grant: str | Grant) -> Grant:
    """A name alone is a grant without limits."""
    return Grant(grant) if isinstance(grant, str) else grant


def grant_of(stored: StoredGrant) -> Grant:
    """A grant as a person gave it."""
    limits = msgspec.json.decode(stored.limits, type=GrantLimits)
    policy: Literal["allow", "ask"] = "ask" if stored.policy is GrantPolicy.ASK else "allow"
    return Grant(stored.permission, policy, limits.per_run, limits.per_day)


_RISKS: Mapping[str, int] = {"low": 0, "medium": 1, "high": 2}


def _highest(methods: list[Method]) -> str:
    return max((each.risk for each in methods), key=lambda risk: _RISKS[risk])


def _names(methods: list[Method]) -> list[str]:
    return sorted(each.full_name for each in methods)


def _line(each: Needed) -> str:
    what = "changes the outside" if each.mutates else "reads"
    return f"{each.permission} (risk {each.risk}, {what}): {', '.join(f'ctx.{name}' for name in each.methods)}"
