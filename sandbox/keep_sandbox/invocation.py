"""One handler of one script, with everything it is given: the whole input of an invocation, as data.

What the handler may reach is here and nowhere else. A capability that is not listed does not exist in its `ctx`.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

MethodKind: TypeAlias = Literal["read", "mutation"]


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `ctx` has in this invocation."""

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
    """JSON text of an array: what follows `ctx`. A state that was never saved is left out, not null."""
    capabilities: Capabilities = Capabilities()
    now_ms: int
    """What `Date` says during the whole invocation."""
    seed: int
    """Where `Math.random` begins. The same seed gives the same numbers."""

    def __post_init__(self) -> None:
        if not self.args.startswith("["):
            raise ValueError("the arguments are the JSON text of an array")
        address = self.address
        if len(address) != {"producers": 2, "jobs": 2, "consumers": 3}.get(address[0]) or not all(address):
            raise ValueError(f"not the address of a handler: {self.handler!r}")
        if len(address) == 3 and address[2] not in ("prepare", "mutate", "next"):
            raise ValueError(f"a consumer has no phase {address[2]!r}")

    @property
    def address(self) -> list[str]:
        """The handler's address in its parts. A name may contain dots; a group and a phase do not."""
        group, _, rest = self.handler.partition(".")
        if group != "consumers":
            return [group, rest]
        name, _, phase = rest.rpartition(".")
        return [group, name, phase]
