"""Find a certification by its name, and say what is wrong with a name that has none."""

import sys
from importlib import import_module

from keep_actors.connectors import Connector
from keep_actors.kernel.foreign_code import attempt, described
from keep_actors.testing.certification.subject import Certification


class CertificationLoadError(Exception):
    """There is no certification of this name. The message says what to do."""


def load_certification(spec: str) -> Certification:
    """The certification of `module:name`. Raises `CertificationLoadError`."""
    module, _, name = spec.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise CertificationLoadError(
            f"{spec!r} is not of the form module:name, as in test_parcels:ParcelsCertification"
        )
    with attempt() as tried:
        import_module(module)
    if tried.error is not None:
        raise CertificationLoadError(
            f"{spec!r}: {module} cannot be imported: {described(tried.error)}"
        ) from tried.error
    found: object = sys.modules[module]
    for part in name.split("."):
        if not hasattr(found, part):
            there = ", ".join(known for known, value in vars(sys.modules[module]).items() if _is_subject(value))
            raise CertificationLoadError(f"{spec!r}: {module} has no {name}; certifications in it: {there or 'none'}")
        found = getattr(found, part)
    return _made(spec, found)


def _made(spec: str, found: object) -> Certification:
    kind = found if isinstance(found, type) else type(found)
    if issubclass(kind, Connector):
        raise CertificationLoadError(
            f"{spec!r} is a connector. Name a class that derives from keep_actors.testing.certification.Certification: "
            "it says how to start a service that is for tests, and how to count effects there. "
            "`keep connector new NAME` writes one beside a connector."
        )
    if not isinstance(found, type) or not issubclass(found, Certification):
        raise CertificationLoadError(
            f"{spec!r} is {described_kind(found)}. Name a class that derives from "
            "keep_actors.testing.certification.Certification; `keep connector new NAME` writes one."
        )
    made: list[Certification] = []
    with attempt() as tried:
        made.append(found())
    if tried.error is not None:
        words = f"{spec!r} cannot be made: {described(tried.error)}. It is made without arguments."
        raise CertificationLoadError(words) from tried.error
    return made[0]


def described_kind(found: object) -> str:
    """A class or the class of a value, in words."""
    return f"the class {found.__name__}" if isinstance(found, type) else f"an object of {type(found).__name__}"


def _is_subject(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Certification) and value is not Certification
