"""All connectors of one host, and their methods by the names that scripts use."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import NoReturn

from keep_actors.connectors.connector import Connector
from keep_actors.connectors.errors import ConnectorDefinitionError, ConnectorNotOpened, PreconditionFailed
from keep_actors.connectors.method import Method
from keep_actors.kernel.foreign_code import attempt, cut, spelled_out
from keep_actors.outbound.redaction import redacted_error, redacted_words
from keep_sandbox.invocation import MethodKind


class Catalog:
    """The connectors of a host, immutable. Refuses two connectors of one name."""

    def __init__(self, connectors: Iterable[Connector]) -> None:
        by_name: dict[str, Connector] = {}
        methods: dict[str, Method] = {}
        for connector in connectors:
            _refuse_unusable(connector, by_name)
            by_name[connector.name] = connector
            for definition in connector.__definitions__.values():
                methods[definition.full_name] = Method.of(connector, definition)
        self.connectors = tuple(by_name.values())
        """In the given order, in which they are opened; they are closed in reverse."""
        self.methods: Mapping[str, Method] = MappingProxyType(methods)
        """By full name: `sheets.appendRow`."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open all connectors, and close them at the end in reverse. Raises `ConnectorNotOpened`."""
        async with AsyncExitStack() as stack:
            for connector in self.connectors:
                with attempt() as tried:
                    await connector.open()
                if tried.error is not None:
                    error = redacted_error(tried.error, connector.__hidden__)
                    said = cut(redacted_words(spelled_out(tried.error), connector.__hidden__))
                    raise ConnectorNotOpened(f"The connector {connector.name!r} could not be opened: {said}") from error
                stack.push_async_callback(connector.close)
            yield

    def get(self, full_name: str) -> Method | None:
        """The method of this full name, if there is one."""
        return self.methods.get(full_name)

    def kinds(self) -> dict[str, MethodKind]:
        """The kinds of all methods, for `SandboxPool.inspect`."""
        return {full_name: method.kind for full_name, method in self.methods.items()}

    def capabilities(self) -> dict[str, dict[str, MethodKind]]:
        """All methods, for `Capabilities.connectors` of a script that may use every one."""
        namespaces: dict[str, dict[str, MethodKind]] = {connector.name: {} for connector in self.connectors}
        for method in self.methods.values():
            namespaces[method.connector][method.name] = method.kind
        return namespaces

    def for_looking(self, *, call_reads: bool = True) -> "Catalog":
        """A catalog for a dry run: the same names and types, but mutations have no connector behind them.

        Without `call_reads` the reads have none either.
        """
        looking = Catalog(())
        looking.connectors = self.connectors
        looking.methods = MappingProxyType(
            {
                name: method if method.kind == "read" and call_reads else _hollow(method)
                for name, method in self.methods.items()
            }
        )
        return looking


def _hollow(method: Method) -> Method:
    async def refuse(_: Connector, **__: object) -> NoReturn:
        raise PreconditionFailed(f"{method.full_name} is not called in a dry run")

    return replace(method, instance=Connector(), function=refuse, reconciler=None, comparer=None, check_url=None)


def _refuse_unusable(connector: object, taken: Mapping[str, Connector]) -> None:
    if isinstance(connector, type) and issubclass(connector, Connector):
        raise ConnectorDefinitionError(connector.__name__, f"is a class; pass an instance: `{connector.__name__}(…)`")
    if not isinstance(connector, Connector):
        raise ConnectorDefinitionError(repr(connector), "is not a connector; derive its class from Connector")
    kind = type(connector).__name__
    if not connector.__definitions__:
        raise ConnectorDefinitionError(kind, "has no method for scripts; decorate one with @read or @mutation")
    if connector.name in taken:
        other = type(taken[connector.name]).__name__
        what = f"has the name {connector.name!r} of another connector ({other}); derive a class and rename it"
        raise ConnectorDefinitionError(kind, what)
