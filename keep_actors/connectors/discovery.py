"""Find connectors by name: in the entry points of installed distributions, or as `module:name`."""

import inspect
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NoReturn

from keep_actors.connectors.connector import Connector
from keep_actors.connectors.errors import ConnectorLoadError
from keep_actors.kernel.foreign_code import attempt, described

GROUP: Final = "keep_actors.connectors"


def discover(names: Iterable[str] | None = None) -> list[Connector]:
    """The connectors of these entry points, or of all. Raises `ConnectorLoadError`."""
    offered: dict[str, list[EntryPoint]] = {}
    for entry_point in entry_points(group=GROUP):
        offered.setdefault(entry_point.name, []).append(entry_point)
    wanted = sorted(offered) if names is None else list(dict.fromkeys(names))
    for name in wanted:
        if name not in offered:
            there = ", ".join(sorted(offered)) or "none"
            raise ConnectorLoadError(f"no installed distribution has a connector {name!r}; there are: {there}")
        if len(offered[name]) > 1:
            owners = " and ".join(sorted(_distribution(each) for each in offered[name]))
            raise ConnectorLoadError(f"connector {name!r} is offered by {owners}; keep one of them")
    return [connector for name in wanted for connector in _loaded(offered[name][0])]


def load(spec: str) -> list[Connector]:
    """The connectors of `module:name`: a connector, its class, a function that makes it, or a list of these.

    Raises `ConnectorLoadError`.
    """
    module_name, _, path = spec.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise ConnectorLoadError(f"{spec!r} is not of the form module:name, as in my_package.mail:Gmail")
    with attempt() as tried:
        import_module(module_name)
    if tried.error is not None:
        _explain_import(spec, module_name, tried.error)
    module = sys.modules[module_name]
    found: object = module
    for part in path.split("."):
        if not hasattr(found, part):
            there = ", ".join(name for name, value in vars(module).items() if _looks_usable(value)) or "none"
            raise ConnectorLoadError(f"{spec!r}: {module_name} has no {path}; connectors in it: {there}")
        found = getattr(found, part)
    return _built(found, f"{spec!r}")


def _loaded(entry_point: EntryPoint) -> list[Connector]:
    where = f"connector {entry_point.name!r} ({entry_point.value}) of {_distribution(entry_point)}"
    found: object = None
    with attempt() as tried:
        found = entry_point.load()
    if tried.error is not None:
        raise ConnectorLoadError(f"{where} cannot be imported: {described(tried.error)}") from tried.error
    return _built(found, where)


def _built(found: object, where: str, *, may_call: bool = True) -> list[Connector]:
    if isinstance(found, Connector):
        return [found]
    if isinstance(found, list | tuple):
        return [connector for each in found for connector in _built(each, where, may_call=may_call)]
    is_other_class = isinstance(found, type) and not issubclass(found, Connector)
    if not may_call or is_other_class or not callable(found):
        what = "makes" if not may_call else "is"
        raise ConnectorLoadError(
            f"{where} {what} {found!r}; expected a connector, its class, a function that makes it or a list"
        )
    if inspect.iscoroutinefunction(found):
        raise ConnectorLoadError(f"{where} is an async function; use a plain one, and await in `open`")
    return _built(_called(found, where), where, may_call=False)


def _called(make: Callable[[], object], where: str) -> object:
    made: object = None
    with attempt() as tried:
        made = make()
    if tried.error is not None:
        what = f"{where} cannot be made: {described(tried.error)}. It is called without arguments."
        raise ConnectorLoadError(what) from tried.error
    return made


def _explain_import(spec: str, module_name: str, error: Exception) -> NoReturn:
    # The module itself or a package around it is missing, not something that the module imports.
    if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
        what = f"{spec!r}: there is no module {error.name!r}; is it installed, or its folder in PYTHONPATH?"
    else:
        what = f"{spec!r}: {module_name} cannot be imported: {described(error)}"
    raise ConnectorLoadError(what) from error


def _looks_usable(value: object) -> bool:
    is_connector_class = isinstance(value, type) and issubclass(value, Connector) and value is not Connector
    return is_connector_class or isinstance(value, Connector)


def _distribution(entry_point: EntryPoint) -> str:
    dist = entry_point.dist
    return f"{dist.name} {dist.version}" if dist is not None else "an unknown distribution"
