"""The base class of connectors. A class that cannot work is refused when it is defined, not when a script calls it."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from keep_actors.connectors.definition import Definition, define
from keep_actors.connectors.errors import ConnectorDefinitionError
from keep_actors.connectors.offered import Offered, define_offered, under_another_name
from keep_actors.outbound.logs import keep_out_of_logs
from keep_actors.outbound.secret import Secret


class Connector:
    """One outside service. A subclass has a `name`, its namespace in `ctx`, and decorated methods.

    Its `__init__` may take any arguments. The host awaits `open` before the first call and `close` after the last.
    """

    name: ClassVar[str]
    __definitions__: ClassVar[Mapping[str, Definition]] = {}
    __hidden__: tuple[Secret, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__definitions__ = define(cls)

    def rename(self, name: str) -> None:
        """Give this instance another namespace in `ctx` than its class: two mailboxes have two names."""
        renamed = {each.name: under_another_name(each, name) for each in self.__definitions__.values()}
        self.name = name  # type: ignore[misc]  # a class variable of every other connector
        self.__definitions__ = renamed  # type: ignore[misc]  # as above: the catalog asks the instance

    def hide(self, *secrets: Secret) -> None:
        """Replace these in everything that leaves this connector: results, errors, and what is logged of them.

        Client packages that log the answers of services (httpx2, imapclient, mcp, psycopg) do so without them, too.
        """
        self.__hidden__ = (*self.__hidden__, *secrets)
        keep_out_of_logs(secrets)

    def offer(self, methods: Iterable[Offered]) -> None:
        """Add methods that are known only now, in `__init__`. Raises `ConnectorDefinitionError`."""
        offered = dict(self.__definitions__)
        for method in methods:
            definition = define_offered(self.name, method)
            if definition.name in offered:
                raise ConnectorDefinitionError(definition.full_name, "is there twice; rename one")
            offered[definition.name] = definition
        self.__definitions__ = offered  # type: ignore[misc]  # as in `rename`

    async def open(self) -> None:
        """Connect, authenticate, warm up. If it raises, the host does not start."""

    async def close(self) -> None:
        """Release what `open` acquired."""
