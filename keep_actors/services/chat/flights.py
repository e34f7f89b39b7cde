"""Requests that are on their way: equal ones at the same time are one request, and all who ask get its answer."""

import copy
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

from keep_actors.connectors import ConnectorError

T = TypeVar("T")


class _Flight(Generic[T]):
    def __init__(self) -> None:
        self.landed = anyio.Event()
        self.answer: T | None = None
        self.error: ConnectorError | None = None


class Flights(Generic[T]):
    """The requests of one connector, by key."""

    def __init__(self) -> None:
        self._flying: dict[str, _Flight[T]] = {}

    async def join(self, key: str, request: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of a request with this key that is on its way, or make it.

        An error of the request is the error of all. If the one who makes it is cancelled, the next makes it.
        """
        while (flight := self._flying.get(key)) is not None:
            await flight.landed.wait()
            if flight.error is not None:
                raise copy.copy(flight.error)
            if flight.answer is not None:
                return flight.answer
        flight = self._flying[key] = _Flight()
        try:
            flight.answer = await request()
        except ConnectorError as error:
            flight.error = error
            raise
        finally:
            del self._flying[key]
            flight.landed.set()
        return flight.answer
