"""Methods known only when a connector is made: tables of a database, tools of a server, operations of a service.

They are described as data, and become the same definitions as decorated methods, by the same checks.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from keep_actors.connectors.declaration import Comparer, DeclaredMutation, Options, Reconciler
from keep_actors.connectors.definition import Definition, complete
from keep_actors.connectors.errors import ConnectorDefinitionError
from keep_actors.connectors.names import problem_with_method, problem_with_namespace
from keep_actors.connectors.signature import described_signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """One parameter of an offered method."""

    name: str
    """Its Python name: how the function and `call.params` know it."""
    type: Any
    """Any type that msgspec decodes from JSON."""
    default: Any = msgspec.NODEFAULT
    """`msgspec.UNSET` for one that may be left out."""
    spelled: str = ""
    """Its JavaScript name, if that is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """One method. `function(connector, call=…, **parameters)` does the work."""

    function: Callable[..., Coroutine[Any, Any, Any]]
    options: Options
    """With its JavaScript name."""
    params: Sequence[Param] = ()
    result: Any = None
    description: str = ""
    reconciler: Reconciler | None = None
    comparer: Comparer | None = None


def define_offered(connector: str, offered: Offered) -> Definition:
    """The definition of an offered method. Raises `ConnectorDefinitionError`."""
    options = offered.options
    where = f"{connector}.{options.name}"
    if options.name is None:
        raise ConnectorDefinitionError(connector, "an offered method has no name")
    if problem := problem_with_method(options.name):
        raise ConnectorDefinitionError(where, f"{problem}; give it another name")
    fields = [(each.name, each.type, each.default, each.spelled or each.name) for each in offered.params]
    signature = described_signature(where, options.kind, fields, offered.result)
    declared: DeclaredMutation[..., Any] = DeclaredMutation(offered.function, options)
    declared.reconciler = offered.reconciler
    declared.comparer = offered.comparer
    return complete(where, connector, options.name, declared, signature, offered.description)


def under_another_name(definition: Definition, name: str) -> Definition:
    """The same method in another namespace. A permission that has the namespace in it changes with it."""
    if problem := problem_with_namespace(name):
        raise ConnectorDefinitionError(definition.full_name, f"name {problem}; choose another")
    own = definition.permission == definition.full_name
    renamed = replace(definition, connector=name)
    return replace(renamed, permission=renamed.full_name) if own else renamed
