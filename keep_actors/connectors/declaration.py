"""The decorators of a connector's methods. They only store their options; the class checks them when it is complete.

A decorated method can still be awaited as an ordinary method of its instance.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

from keep_actors.connectors.calls import MutationCall
from keep_actors.connectors.errors import ConnectorDefinitionError
from keep_actors.connectors.outcomes import Verdict
from keep_sandbox.invocation import MethodKind

Risk: TypeAlias = Literal["low", "medium", "high"]
Similarity: TypeAlias = Literal["equivalent", "minor", "significant"]
CheckUrl: TypeAlias = str | Callable[[MutationCall], str]
Reconciler: TypeAlias = Callable[[Any, MutationCall], Coroutine[Any, Any, Verdict]]
Comparer: TypeAlias = Callable[[Any, dict[str, Any], dict[str, Any]], Similarity]

P = ParamSpec("P")
R = TypeVar("R")
ReconcilerT = TypeVar("ReconcilerT", bound=Reconciler)
ComparerT = TypeVar("ComparerT", bound=Comparer)

Function: TypeAlias = Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a decorator."""

    kind: MethodKind
    risk: Risk
    name: str | None = None
    permission: str | None = None
    timeout_ms: int | None = None
    by_id: bool = False
    marks_sent: bool = False
    settle_ms: int = 0
    identity: Sequence[str] | None = None
    check_hint: str = ""
    check_url: CheckUrl | None = None


class Declared(Generic[P, R]):
    """A method that scripts can call, in its class."""

    def __init__(self, function: Function[P, R], options: Options) -> None:
        self.function = function
        self.options = options
        self.reconciler: Reconciler | None = None
        self.comparer: Comparer | None = None
        self.__doc__ = getattr(function, "__doc__", None)

    @overload
    def __get__(self, instance: None, owner: type) -> "Declared[P, R]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, instance: object, owner: type) -> Any:
        """Return the plain method, so that the connector's own code can call it."""
        return self if instance is None else self.function.__get__(instance, owner)


class DeclaredMutation(Declared[P, R]):
    """A mutation, which may have a method to look for its effect and one to compare payloads."""

    def reconcile(self, function: ReconcilerT) -> ReconcilerT:
        """Decorate the method that finds out if the effect is there."""
        self._refuse_second("reconcile", function, self.reconciler)
        self.reconciler = function
        return function

    def compare_payload(self, function: ComparerT) -> ComparerT:
        """Decorate the method that says how much two payloads for the same target differ."""
        self._refuse_second("compare_payload", function, self.comparer)
        self.comparer = function
        return function

    def _refuse_second(self, what: str, function: Callable[..., Any], given: Callable[..., Any] | None) -> None:
        where = getattr(self.function, "__qualname__", repr(self.function))
        if given is not None:
            raise ConnectorDefinitionError(where, f"has two {what} methods; keep one")
        if getattr(function, "__name__", "") == getattr(self.function, "__name__", None):
            # A property's setter may have the same name; here the second function would replace the mutation.
            raise ConnectorDefinitionError(where, f"its {what} method has the same name; give it another")


@overload
def read(function: Function[P, R], /) -> Declared[P, R]: ...
@overload
def read(
    *,
    name: str | None = None,
    by_id: bool = False,
    permission: str | None = None,
    risk: Risk = "low",
    timeout_ms: int | None = None,
) -> Callable[[Function[P, R]], Declared[P, R]]: ...
def read(
    function: Function[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    by_id: bool = False,
    permission: str | None = None,
    risk: Risk = "low",
    timeout_ms: int | None = None,
) -> Declared[P, R] | Callable[[Function[P, R]], Declared[P, R]]:
    """Decorate a method that reads and changes nothing. `by_id`: it reads one thing whose id the script has."""
    options = Options(kind="read", name=name, by_id=by_id, permission=permission, risk=risk, timeout_ms=timeout_ms)

    def declare(function: Function[P, R]) -> Declared[P, R]:
        return Declared(function, options)

    return declare if function is None else declare(function)


@overload
def mutation(function: Function[P, R], /) -> DeclaredMutation[P, R]: ...
@overload
def mutation(
    *,
    name: str | None = None,
    permission: str | None = None,
    risk: Risk = "medium",
    timeout_ms: int | None = None,
    settle_ms: int = 0,
    marks_sent: bool = False,
    identity: Sequence[str] | None = None,
    check_hint: str = "",
    check_url: CheckUrl | None = None,
) -> Callable[[Function[P, R]], DeclaredMutation[P, R]]: ...
def mutation(
    function: Function[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    permission: str | None = None,
    risk: Risk = "medium",
    timeout_ms: int | None = None,
    settle_ms: int = 0,
    marks_sent: bool = False,
    identity: Sequence[str] | None = None,
    check_hint: str = "",
    check_url: CheckUrl | None = None,
) -> DeclaredMutation[P, R] | Callable[[Function[P, R]], DeclaredMutation[P, R]]:
    """Decorate a method that changes something outside.

    `identity` names the parameters that identify the target; the others are payload. Without it an item has one such
    call, or one for each `subkey`: a second call with another payload is a mismatch, and a person is asked.
    `marks_sent`: the method calls `call.sending()` before the first byte that can matter, so an error or a time-out
    before it means that nothing happened. `settle_ms`: the time after a call in which its effect may still be
    invisible to `reconcile`. `check_hint` and `check_url` tell a person how to check the outcome.
    """
    options = Options(
        kind="mutation",
        name=name,
        permission=permission,
        risk=risk,
        timeout_ms=timeout_ms,
        settle_ms=settle_ms,
        marks_sent=marks_sent,
        identity=identity,
        check_hint=check_hint,
        check_url=check_url,
    )

    def declare(function: Function[P, R]) -> DeclaredMutation[P, R]:
        return DeclaredMutation(function, options)

    return declare if function is None else declare(function)
