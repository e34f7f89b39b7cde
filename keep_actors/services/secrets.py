"""Secrets, from where they are kept: the environment, a file, or a function. No message has a part of one."""

import os
import stat
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from keep_actors.kernel.foreign_code import attempt
from keep_actors.outbound.secret import Secret

_BYTES_MAX: Final = 64 * 1024
_WRITE: Final = 'write { env = "NAME" }, { file = "path" } or { call = "module:function" }'


class SecretMissing(ValueError):
    """A secret is not where it should be. The message says where that is, and what to do."""


def secret_from(place: object, folder: Path) -> Secret:
    """The secret at a place, as a file of settings names it. Raises `SecretMissing`."""
    if isinstance(place, Secret):
        return place
    if isinstance(place, str):
        raise SecretMissing(f"a secret does not stand in this file; {_WRITE}")
    if (
        not isinstance(place, Mapping)
        or not set(place) <= {*_SOURCES, "shared"}
        or len(set(place) & set(_SOURCES)) != 1
    ):
        raise SecretMissing(f"a secret has one source; {_WRITE}")
    [source] = set(place) & set(_SOURCES)
    if not isinstance(place[source], str) or not place[source]:
        raise SecretMissing(f"{source} is not a name; {_WRITE}")
    if "shared" in place and (source != "file" or not isinstance(place["shared"], bool)):
        raise SecretMissing("`shared = true` is for a file that others may read, such as a mounted one")
    value = _SOURCES[source](place[source], folder, bool(place.get("shared", False)))
    if not value:
        raise SecretMissing(f"the secret of {source} {place[source]!r} is empty")
    return Secret(value)


def _from_environment(name: str, _: Path, __: bool) -> str:
    if name not in os.environ:
        raise SecretMissing(f"the environment has no {name}; set it before the start")
    return os.environ[name]


def _from_file(name: str, folder: Path, shared: bool) -> str:
    """Of the user who runs this or of root, and readable for nobody else. One line feed at the end is left out."""
    path = folder / Path(name).expanduser()
    try:
        # Without waiting: a pipe that nobody writes to would keep it here for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            about = os.fstat(file.fileno())
            _refuse_exposed(path, about, shared)
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise SecretMissing(f"the file {path} cannot be read: {error.strerror}") from None
    if len(content) > _BYTES_MAX:
        raise SecretMissing(f"the file {path} has more than {_BYTES_MAX:,} bytes; it is no secret")
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise SecretMissing(f"the file {path} is not UTF-8 text") from None


def _refuse_exposed(path: Path, about: os.stat_result, shared: bool) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise SecretMissing(f"{path} is not a file")
    if os.name != "posix":
        return  # the rights of Windows are not in these bits
    if about.st_uid not in (os.geteuid(), 0):
        raise SecretMissing(f"the file {path} belongs to another user; make it yours")
    exposed = 0o022 if shared else 0o077
    if about.st_mode & exposed:
        what = "change" if shared else "read"
        raise SecretMissing(
            f"others may {what} the file {path}; write `chmod 600 {path}`"
            + ("" if shared else ", or { file = …, shared = true } if that is so on purpose")
        )


def _from_function(name: str, _: Path, __: bool) -> str:
    module_name, _colon, function_name = name.partition(":")
    found: Callable[[], Any] | None = None
    with attempt() as tried:
        found = getattr(import_module(module_name), function_name)
    if tried.error is not None or not callable(found):
        raise SecretMissing(f"there is no function {name!r}; write module:function")
    value: object = None
    with attempt() as tried:
        value = found()
    if tried.error is not None:
        # Its words may have the secret in them.
        raise SecretMissing(f"the function {name} raised {type(tried.error).__name__}")
    value = value.reveal() if isinstance(value, Secret) else value
    if not isinstance(value, str):
        raise SecretMissing(f"the function {name} returned no text and no Secret, but a {type(value).__name__}")
    return value


_SOURCES: Final[Mapping[str, Callable[[str, Path, bool], str]]] = {
    "env": _from_environment,
    "file": _from_file,
    "call": _from_function,
}
