"""The names that others import. A change of any of them is a change of the list beside this file, and meant.

`python -m tests.test_public_names` writes the list again.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import keep_actors
import keep_sandbox
import keep_storage

LIST = Path(__file__).with_name("public_names.txt")


def public_names() -> list[str]:
    """Every name in the `__all__` of every module, sorted."""
    found = set()
    for package in (keep_actors, keep_sandbox, keep_storage):
        inside = (each.name for each in walk_packages(package.__path__, f"{package.__name__}."))
        for name in (package.__name__, *(each for each in inside if not each.endswith("__main__"))):
            module = import_module(name)
            for public in getattr(module, "__all__", ()):
                assert hasattr(module, public), f"{name} has no {public}"
                found.add(f"{name}.{public}")
    return sorted(found)


def test_the_public_names_are_those_on_the_list() -> None:
    assert public_names() == LIST.read_text("utf-8").splitlines()


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in public_names()), "utf-8")
