"""The whole input of an invocation, as data: one handler of one script with its arguments and capabilities.

A capability that is not listed here does not exist in the handler's `ctx`.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

MethodKind: TypeAlias = Literal["read", "mutation"]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The members of `ctx` in this invocation."""

    peek: bool = False
    get_by_ids: bool = False
    publish: bool = False
    with_item: bool = False
    """`ctx.withItem` and `ctx.item`."""
    connectors: Mapping[str, Mapping[str, MethodKind]] = {}
    """`{"gmail": {"search": "read", "send": "mutation"}}` becomes `ctx.gmail.search` and `ctx.gmail.send`."""
    mutation_is_terminal: bool = True
    """In a consumer's `mutate` the mutation ends the script. In a job's item scope it returns its result."""


class Invocation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call of one handler."""

    source: str
    handler: str
    """`producers.poll`, `consumers.file.prepare`, `jobs.digest`."""
    args: str = "[]"
    """The arguments after `ctx`, as JSON text of an array. A state that was never saved is left out, not null."""
    capabilities: Capabilities = Capabilities()
    now_ms: int
    """The time that `Date` returns during the whole invocation."""
    seed: int
    """The seed of `Math.random`. The same seed gives the same numbers."""

    def __post_init__(self) -> None:
        if not self.args.startswith("["):
            raise ValueError("args must be the JSON text of an array")
        address = self.address
        if len(address) != {"producers": 2, "jobs": 2, "consumers": 3}.get(address[0]) or not all(address):
            raise ValueError(f"{self.handler!r} is not the address of a handler; write it as `jobs.name`")
        if len(address) == 3 and address[2] not in ("prepare", "mutate", "next"):
            raise ValueError(f"a consumer has no phase {address[2]!r}; use prepare, mutate or next")

    @property
    def address(self) -> list[str]:
        """The parts of the handler's address. A name may contain dots; a group and a phase do not."""
        group, _, rest = self.handler.partition(".")
        if group != "consumers":
            return [group, rest]
        name, _, phase = rest.rpartition(".")
        return [group, name, phase]
