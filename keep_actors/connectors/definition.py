"""The definition of a connector's method, checked when the class of the connector is defined."""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from keep_actors.connectors.declaration import CheckUrl, Comparer, Declared, Options, Reconciler, Risk
from keep_actors.connectors.errors import ConnectorDefinitionError
from keep_actors.connectors.names import camel_case, problem_with_method, problem_with_namespace
from keep_actors.connectors.signature import Signature, read_signature
from keep_sandbox.invocation import MethodKind

LIFECYCLE = ("open", "close")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One method of one connector class."""

    connector: str
    name: str
    """The name that scripts use."""
    kind: MethodKind
    by_id: bool
    permission: str
    risk: Risk
    timeout_ms: int | None
    """The author's choice. None: the host's policy decides."""
    settle_ms: int
    marks_sent: bool
    """The method says when it sends: what fails before that did not happen."""
    description: str
    check_hint: str
    check_url: CheckUrl | None
    identity: tuple[str, ...]
    """The Python names of the parameters that identify the target."""
    signature: Signature
    function: Callable[..., Any]
    reconciler: Reconciler | None
    comparer: Comparer | None

    @property
    def full_name(self) -> str:
        """`sheets.appendRow`, as a request names it."""
        return f"{self.connector}.{self.name}"

    @property
    def reconcilable(self) -> bool:
        """True if the connector can find out the outcome of a call."""
        return self.reconciler is not None

    def params_schema(self) -> dict[str, Any]:
        """JSON Schema of the object that a script passes."""
        return msgspec.json.schema(self.signature.params_type)

    def result_schema(self) -> dict[str, Any]:
        """JSON Schema of the result."""
        return msgspec.json.schema(self.signature.result_type)


def define(cls: type) -> dict[str, Definition]:
    """The methods of a connector class, by their JavaScript names. Raises `ConnectorDefinitionError`."""
    declared = _declared(cls)
    name = getattr(cls, "name", None)
    if name is None and not declared:
        return {}  # a base class
    if not isinstance(name, str):
        raise ConnectorDefinitionError(cls.__name__, 'has no name; write `name = "sheets"` for `ctx.sheets`')
    if problem := problem_with_namespace(name):
        raise ConnectorDefinitionError(cls.__name__, f"name {problem}; choose another")
    _check_lifecycle(cls, declared)
    definitions: dict[str, Definition] = {}
    attributes: dict[str, str] = {}
    for attribute, each in declared.items():
        definition = _define(f"{cls.__name__}.{attribute}", name, attribute, each)
        if definition.name in definitions:
            what = f"is {definition.name!r} in JavaScript, and so is {attributes[definition.name]}; rename one"
            raise ConnectorDefinitionError(f"{cls.__name__}.{attribute}", what)
        definitions[definition.name] = definition
        attributes[definition.name] = attribute
    return definitions


def _declared(cls: type) -> dict[str, Declared[Any, Any]]:
    found: dict[str, Declared[Any, Any]] = {}
    for owner in reversed(cls.__mro__):
        for attribute, value in vars(owner).items():
            if isinstance(value, Declared):
                found[attribute] = value
            elif attribute in found:
                what = f"replaces a {found[attribute].options.kind}, but is not decorated; decorate it, or rename it"
                raise ConnectorDefinitionError(f"{owner.__name__}.{attribute}", what)
    return found


def _check_lifecycle(cls: type, declared: Mapping[str, object]) -> None:
    for attribute in ("name", *LIFECYCLE):
        if attribute in declared:
            what = f'is reserved; rename the method and decorate it with `name="{attribute}"`'
            raise ConnectorDefinitionError(f"{cls.__name__}.{attribute}", what)
    for attribute in LIFECYCLE:
        if not inspect.iscoroutinefunction(getattr(cls, attribute)):
            raise ConnectorDefinitionError(f"{cls.__name__}.{attribute}", "is awaited; write `async def`")


def _define(where: str, connector: str, attribute: str, declared: Declared[Any, Any]) -> Definition:
    options = declared.options
    if not inspect.iscoroutinefunction(declared.function):
        raise ConnectorDefinitionError(where, f"a {options.kind} is awaited; write `async def`")
    if options.name is None and attribute.startswith("_"):
        raise ConnectorDefinitionError(
            where, f'is private; remove the underscore, or write `@{options.kind}(name="…")`'
        )
    name = camel_case(attribute) if options.name is None else options.name
    if problem := problem_with_method(name):
        raise ConnectorDefinitionError(where, f'{problem}; rename it, or write `@{options.kind}(name="…")`')
    signature = read_signature(where, f"{connector}.{name}", options.kind, declared.function)
    return complete(where, connector, name, declared, signature, inspect.getdoc(declared.function) or "")


def complete(
    where: str, connector: str, name: str, declared: Declared[Any, Any], signature: Signature, description: str
) -> Definition:
    """The definition of a method whose name and signature are known. Raises `ConnectorDefinitionError`."""
    options = declared.options
    _check_options(where, options)
    identity = _identity(where, options, signature)
    _check_reconciler(where, declared.reconciler)
    _check_comparer(where, declared.comparer, has_payload=len(identity) < len(signature.javascript_names))
    return Definition(
        connector=connector,
        name=name,
        kind=options.kind,
        by_id=options.by_id,
        permission=f"{connector}.{name}" if options.permission is None else options.permission,
        risk=options.risk,
        timeout_ms=options.timeout_ms,
        settle_ms=options.settle_ms,
        marks_sent=options.marks_sent,
        description=description,
        check_hint=options.check_hint,
        check_url=options.check_url,
        identity=identity,
        signature=signature,
        function=declared.function,
        reconciler=declared.reconciler,
        comparer=declared.comparer,
    )


def _check_options(where: str, options: Options) -> None:
    risks = typing.get_args(Risk)
    if options.risk not in risks:
        raise ConnectorDefinitionError(where, f"risk is {options.risk!r}; it must be one of {', '.join(risks)}")
    if options.permission == "":
        raise ConnectorDefinitionError(where, "permission is empty; leave it out for the method's own name")
    if options.timeout_ms is not None and options.timeout_ms <= 0:
        raise ConnectorDefinitionError(where, f"timeout_ms is {options.timeout_ms}; it must be > 0, or None")
    if options.settle_ms < 0:
        raise ConnectorDefinitionError(where, f"settle_ms is {options.settle_ms}; it must be >= 0")
    if isinstance(options.check_url, str) and not is_web_address(options.check_url):
        raise ConnectorDefinitionError(where, f"check_url is {options.check_url!r}; it must start with https://")


def is_web_address(url: object) -> bool:
    """Return True for a http or https address: a person may click on it."""
    return isinstance(url, str) and url.startswith(("https://", "http://"))


def _identity(where: str, options: Options, signature: Signature) -> tuple[str, ...]:
    names = signature.javascript_names
    if options.identity is None:
        return ()
    if isinstance(options.identity, str):
        raise ConnectorDefinitionError(where, f"identity must be a list of names; write `[{options.identity!r}]`")
    for each in options.identity:
        if each not in names:
            what = f"identity names {each!r}, which is not a parameter; there are: {', '.join(names) or 'none'}"
            raise ConnectorDefinitionError(where, what)
    return tuple(name for name in names if name in options.identity)


def _check_reconciler(where: str, reconciler: Reconciler | None) -> None:
    if reconciler is None:
        return
    if not inspect.iscoroutinefunction(reconciler) or len(inspect.signature(reconciler).parameters) != 2:
        what = "its reconcile method must be `async def …(self, call: MutationCall) -> Applied | NotApplied | Retry`"
        raise ConnectorDefinitionError(where, what)


def _check_comparer(where: str, comparer: Comparer | None, *, has_payload: bool) -> None:
    if comparer is None:
        return
    if inspect.iscoroutinefunction(comparer) or len(inspect.signature(comparer).parameters) != 3:
        raise ConnectorDefinitionError(where, "its compare_payload method must be `def …(self, old, new)`, not async")
    if not has_payload:
        what = "has a compare_payload method but no payload; remove parameters that may change from `identity`"
        raise ConnectorDefinitionError(where, what)
