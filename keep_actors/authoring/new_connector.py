"""A connector to begin with: its code, its test and its settings, as texts. They work, and are made to be changed."""

import keyword
import re
from importlib.resources import files
from typing import Final

from keep_actors.connectors.names import camel_case, problem_with_namespace

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TEMPLATES: Final = {"{name}.py": "connector.txt", "test_{name}.py": "test.txt", "{name}.toml": "settings.txt"}


class NameUnusable(ValueError):
    """No connector can have this name. The message says why."""


def new_files(name: str) -> dict[str, str]:
    """The files of a new connector, by name: the connector, its test, its settings. Raises `NameUnusable`."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise NameUnusable(f"{name!r} cannot be the name of a module; write small letters, digits and _, as in parcels")
    if problem := problem_with_namespace(name):
        raise NameUnusable(f"the name {problem}; choose another")
    folder = files("keep_actors.authoring") / "templates"
    return {
        path.format(name=name): (folder / template).read_text("utf-8").format(name=name, title=title_of(name))
        for path, template in _TEMPLATES.items()
    }


def title_of(name: str) -> str:
    """The name of its class."""
    title = camel_case(name)
    return title[:1].upper() + title[1:]
