"""A declared command: its fields, the type of its answer, and the right and the runtime that it needs."""

from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, TypeVar, get_args

import msgspec

from keep_storage.ids import Millis
from keep_storage.operations import Operation

VERSION: Final = 1
"""Version of the declarations, which the two ends of a connection compare."""

T_co = TypeVar("T_co", covariant=True)


class Right(StrEnum):
    """The right that a person needs for a command: for a console that gives people different ones.

    The control socket asks for none of them: its user may do everything.
    """

    READ = "read"
    OPERATE = "operate"
    """Pause, run, stop and end workflows; publish and skip what they work on."""
    ANSWER = "answer"
    """Decide about recorded calls: may they be made, and did they happen."""
    PROPOSE = "propose"
    """Propose scripts, which run only if a person with the right to deploy accepts them."""
    DEPLOY = "deploy"
    """Choose the script that runs."""
    GRANT = "grant"
    """Give and take permissions; a deployment that grants some needs this too."""


class Command(msgspec.Struct, Generic[T_co], frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """An action or a question, answered with a `T`. Its tag is the name of the method of `Keep` that carries it out."""

    right: ClassVar[Right]
    needs_runtime: ClassVar[bool] = True
    """False: it may be written into a file that no runtime owns."""

    v: int = VERSION

    @property
    def method(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments of the method."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "v"}

    @classmethod
    def answer_type(cls) -> Any:
        """The `T`, to decode an answer."""
        [declared] = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]  # every generic class has it
        return declared


class StorageCommand(Command[T_co], Generic[T_co], frozen=True, kw_only=True):
    """A command that is one operation of the storage. Names in it are ids by the time it is written."""

    def operation(self, _: Millis, /) -> Operation[T_co]:
        raise AssertionError("every such command says which operation it is")
