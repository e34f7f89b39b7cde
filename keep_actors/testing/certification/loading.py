"""Find a certification by its name or by its connector, and say what is wrong with a name that has none."""

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import NamedTuple, get_type_hints

from keep_actors.connectors import Connector
from keep_actors.kernel.foreign_code import attempt, described
from keep_actors.testing.certification.subject import Certification


class CertificationLoadError(Exception):
    """There is no certification of this name. The message says what to do."""


class LoadedCertification(NamedTuple):
    """A certification, and the class that its connector has to be of."""

    certification: Certification
    connector_class: type[Connector] = Connector


def load_certification(spec: str) -> LoadedCertification:
    """The certification of `module:name`. Raises `CertificationLoadError`.

    The name may be that of a connector class, if there is one certification for it in its module, or in `test_` of it.
    """
    module, _, name = spec.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise CertificationLoadError(
            f"{spec!r} is not of the form module:name, as in test_parcels:ParcelsCertification"
        )
    found: object = _imported(spec, module)
    for part in name.split("."):
        if not hasattr(found, part):
            there = ", ".join(each.__name__ for each in _subjects(sys.modules[module]))
            raise CertificationLoadError(f"{spec!r}: {module} has no {name}; certifications in it: {there or 'none'}")
        found = getattr(found, part)
    if isinstance(found, type) and issubclass(found, Connector):
        return LoadedCertification(_made(spec, _subject_for(spec, module, found)), found)
    return LoadedCertification(_made(spec, found))


def _imported(spec: str, module: str) -> ModuleType:
    with attempt() as tried:
        import_module(module)
    if tried.error is not None:
        raise CertificationLoadError(
            f"{spec!r}: {module} cannot be imported: {described(tried.error)}"
        ) from tried.error
    return sys.modules[module]


def _subject_for(spec: str, module: str, connector: type[Connector]) -> type[Certification]:
    """The one certification for a class."""
    modules = [each for each in _near(module, connector.__module__) if each == module or _is_there(each)]
    named: list[type[Certification]] = []
    unnamed: list[type[Certification]] = []
    for each in modules:
        for subject in _subjects(_imported(spec, each)):
            if subject.__module__ != each:
                continue  # imported, to derive from it or for something else
            made = _connector_of(subject)
            if made is Connector:
                unnamed.append(subject)
            elif issubclass(made, connector) or issubclass(connector, made):
                named.append(subject)
    match list(dict.fromkeys(named or unnamed)):
        case [only]:
            return only
        case []:
            raise CertificationLoadError(
                f"{spec!r} is a connector, and there is no certification for it in {' or '.join(modules)}. Write a "
                "class that derives from keep_actors.testing.certification.Certification: it says how to start a "
                "service that is for tests, and how to count effects there. `keep connector new NAME` writes one."
            )
        case several:
            raise CertificationLoadError(
                f"{spec!r} has several certifications; name one: {', '.join(each.spec() for each in several)}"
            )


def _near(*modules: str) -> list[str]:
    """The modules of a connector, and where `keep connector new` writes its tests."""
    near = []
    for module in modules:
        package, _, last = module.rpartition(".")
        near += [module, f"{package}.test_{last}" if package else f"test_{last}"]
    return list(dict.fromkeys(near))


def _is_there(module: str) -> bool:
    there = None
    with attempt():  # a package above it may not be there
        there = find_spec(module)
    return there is not None


def _subjects(module: ModuleType) -> Iterator[type[Certification]]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Certification) and not inspect.isabstract(value):
            yield value


def _connector_of(subject: type[Certification]) -> type[Connector]:
    """The class of connectors that it says it makes."""
    hint: object = None
    with attempt():
        hint = get_type_hints(subject.connector).get("return")
    return hint if isinstance(hint, type) and issubclass(hint, Connector) else Connector


def _made(spec: str, found: object) -> Certification:
    if isinstance(found, Connector):
        raise CertificationLoadError(f"{spec!r} is an object of {type(found).__name__}. Name the class.")
    if not isinstance(found, type) or not issubclass(found, Certification):
        raise CertificationLoadError(
            f"{spec!r} is {_kind_of(found)}. Name a connector class, or one that derives from "
            "keep_actors.testing.certification.Certification; `keep connector new NAME` writes both."
        )
    made: list[Certification] = []
    with attempt() as tried:
        made.append(found())
    if tried.error is not None:
        words = f"{spec!r} cannot be made: {described(tried.error)}. It is made without arguments."
        raise CertificationLoadError(words) from tried.error
    return made[0]


def _kind_of(found: object) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else f"an object of {type(found).__name__}"
