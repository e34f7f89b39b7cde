"""The reference: every public name of every package, from its docstring, each once."""

import inspect
import pkgutil
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from textwrap import indent
from types import ModuleType

import msgspec
from sphinx.application import Sphinx

MARK = "<!-- reference -->"
ROOTS = ["keep_actors", "keep_storage", "keep_sandbox"]
PLAIN: dict[str, list[str]] = {
    "keep_actors.secret": ["Secret"],
    "keep_actors.checking": ["check_scripts"],
    "keep_actors.writing": ["writing_prompt"],
    "keep_actors.views": [],
    "keep_actors.item_views": [],
    "keep_actors.faults": [],
    "keep_storage.model": [],
}
"""Modules that the pages speak of and that list no public names: those that are. An empty list: all its classes."""


def packages() -> Iterator[ModuleType]:
    """Every package that says what is public in it."""
    for root in ROOTS:
        module = import_module(root)
        yield module
        for found in pkgutil.iter_modules(module.__path__, f"{root}."):
            if found.ispkg and hasattr(each := import_module(found.name), "__all__"):
                yield each
    yield from map(import_module, PLAIN)


def public(module: ModuleType) -> list[str]:
    """What a package says is public; of a module that says nothing, what is listed here, or the classes it defines."""
    own = [name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__]
    classes = [name for name in own if inspect.isclass(getattr(module, name)) and not name.startswith("_")]
    return list(getattr(module, "__all__", PLAIN.get(module.__name__) or classes))


def entries(module: ModuleType, seen: dict[int, str]) -> Iterator[str]:
    """A directive for each public name; one that another package has shown before is named and not repeated."""
    for name in public(module):
        thing, full = getattr(module, name), f"{module.__name__}.{name}"
        if inspect.ismodule(thing):
            continue
        documented = inspect.isclass(thing) or inspect.isfunction(thing)
        if documented and (first := seen.setdefault(id(thing), full)) != full:
            yield f"``{name}`` is :py:obj:`{first}`.\n"
        elif inspect.isclass(thing):
            # Every field of a value is worth a line, with words or without.
            all_fields = "   :undoc-members:\n" if issubclass(thing, msgspec.Struct | Enum) else ""
            yield f".. autoclass:: {full}\n   :members:\n   :inherited-members: {_foreign(thing)}\n{all_fields}"
        elif inspect.isfunction(thing):
            yield f".. autofunction:: {full}\n"
        else:
            yield f".. autodata:: {full}\n   :no-value:\n"


def _foreign(thing: type) -> str:
    """The classes whose members are not ours to explain."""
    return ",".join(each.__name__ for each in thing.__mro__ if not each.__module__.startswith("keep_"))


def reference() -> str:
    """The text that stands in the place of the mark."""
    seen: dict[int, str] = {}
    parts = []
    for module in packages():
        summary = _as_rst((module.__doc__ or "").splitlines())
        body = "\n".join(["\n".join(summary), "", *entries(module, seen)])
        parts.append(f"## {module.__name__}\n\n````{{eval-rst}}\n{body}\n````")
    return "\n\n".join(parts)


def _as_rst(lines: list[str]) -> list[str]:
    """Docstrings are written like the pages: `code`, and fences around examples."""
    words, *rest = re.split(r"^ *```(\w*)\n(.*?)^ *```$", "\n".join(lines), flags=re.DOTALL | re.MULTILINE)
    text = _literals(words)
    for language, code, words in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        text += f"\n.. code-block:: {language}\n\n{indent(code, '   ')}\n{_literals(words)}"
    return text.split("\n")


def _literals(words: str) -> str:
    # The letter of a plural may stand right behind `code` here, and may not there.
    return re.sub(
        r"(?<!`)`([^`]+)`(?!`)(?=(\w?))", lambda found: f"``{found[1]}``" + ("\\ " if found[2] else ""), words
    )


def _write_reference(_: Sphinx, page: str, text: list[str]) -> None:
    if page == "reference":
        text[0] = text[0].replace(MARK, reference())


def _translate(_: Sphinx, __: str, ___: str, ____: object, _____: object, lines: list[str]) -> None:
    lines[:] = _as_rst(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", _write_reference)
    app.connect("autodoc-process-docstring", _translate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
