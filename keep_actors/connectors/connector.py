"""The base class of connectors. A class that cannot work is refused when it is defined, not when a script calls it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from keep_actors.connectors.definition import Definition, define


class Connector:
    """One outside service. A subclass has a `name`, its namespace in `ctx`, and decorated methods.

    Its `__init__` may take any arguments. The host awaits `open` before the first call and `close` after the last.
    """

    name: ClassVar[str]
    __definitions__: ClassVar[Mapping[str, Definition]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__definitions__ = define(cls)

    async def open(self) -> None:
        """Connect, authenticate, warm up. If it raises, the host does not start."""

    async def close(self) -> None:
        """Release what `open` acquired."""
