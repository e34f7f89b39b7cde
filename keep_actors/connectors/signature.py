"""Parameters and result of a method, read from its Python signature: a struct that validates them, and its schema.

A signature that is not fully typed, or has types that are not JSON, is refused when the class is defined.
"""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from keep_actors.connectors.calls import MutationCall, ReadCall
from keep_actors.connectors.errors import ConnectorDefinitionError, ParamsError
from keep_actors.connectors.names import camel_case, problem_with_parameter
from keep_actors.connectors.params import UNKNOWN_FIELD, Params, misfit
from keep_sandbox.invocation import MethodKind
from keep_sandbox.json_text import slow_to_decode
from keep_storage.model import Json

CALL: Final = "call"
SUBKEY: Final = "subkey"
"""Removed by the host before the parameters of a mutation are validated."""
_CALL_TYPES: Final[Mapping[MethodKind, type]] = {"read": ReadCall, "mutation": MutationCall}
# Raised by msgspec for a value or a type that it cannot handle.
_UNFIT: Final = (TypeError, ValueError, OverflowError, RecursionError)


class ResultMismatch(Exception):
    """The result of a connector does not fit its declared type. `path` is `rows[2].id`, or empty."""

    def __init__(self, words: str, path: str = "", message: str = "") -> None:
        super().__init__(words)
        self.path = path
        self.message = message or words


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of a method's parameters and result."""

    params_type: type[msgspec.Struct]
    javascript_names: Mapping[str, str]
    """By Python name, in the order of the signature."""
    takes_call: bool
    result_type: Any

    @property
    def names(self) -> list[str]:
        """The JavaScript names of the parameters, in the order of the signature."""
        return list(self.javascript_names.values())

    def decode_params(self, method: str, json_text: Json) -> Params:
        """Validate parameters. Raises `ParamsError`."""
        # Decoding blocks the event loop, and a script chose the text.
        if slow := slow_to_decode(json_text.encode(errors="replace")):
            raise ParamsError(method, "", slow)
        try:
            decoded = msgspec.json.decode(json_text, type=self.params_type)
        except msgspec.ValidationError as error:
            path, message = misfit(str(error))
            if message == UNKNOWN_FIELD and not set(".[") & set(path):
                message += f"; there are: {', '.join(self.javascript_names.values()) or 'none'}"
            raise ParamsError(method, path, message) from None
        except (ValueError, RecursionError) as error:
            raise ParamsError(method, "", f"not JSON: {error}") from None
        return Params(json_text, {name: getattr(decoded, name) for name in self.javascript_names})

    def result_text(self, value: object) -> Json:
        """Encode a result, without fields that the annotation does not have. Raises `ResultMismatch`."""
        try:
            # Through JSON instead of `convert`, which does not check the fields of an instance of the right struct.
            decoded = msgspec.json.decode(msgspec.json.encode(value), type=self.result_type)
            return msgspec.json.encode(decoded).decode()
        except msgspec.ValidationError as error:
            path, message = misfit(str(error))
            why = ": ".join(part for part in (path, message) if part)
            raise ResultMismatch(f"the result does not fit: {why}", path, message) from None
        except _UNFIT as error:
            raise ResultMismatch(f"the result is not JSON: {error}", "", f"is not JSON: {error}") from error


def read_signature(where: str, title: str, kind: MethodKind, function: Callable[..., Any]) -> Signature:
    """Read the signature of a method. `where` is for errors, `title` for the schema."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].name != "self":
        raise ConnectorDefinitionError(where, "the first parameter must be `self`")
    hints = _hints(where, function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    takes_call = False
    for parameter in parameters[1:]:
        annotation = _annotation(where, parameter, hints)
        if _is_the_call(where, kind, parameter.name, annotation):
            takes_call = True
            continue
        names[parameter.name] = _javascript_name(where, kind, parameter.name, names)
        _check_type(where, f"parameter {parameter.name!r}", annotation)
        if parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, annotation))
        else:
            _check_default(where, parameter, annotation)
            fields.append((parameter.name, annotation, parameter.default))
    if "return" not in hints:
        raise ConnectorDefinitionError(where, "has no return annotation; write `-> <type>`, or `-> None`")
    _check_type(where, "the result", hints["return"])
    return Signature(_struct(where, title, fields, names), names, takes_call, hints["return"])


def described_signature(
    where: str, kind: MethodKind, fields: Sequence[tuple[str, Any, Any, str]], result: Any
) -> Signature:
    """The signature of a method that is described as data: its fields are name, type, default and JavaScript name."""
    names: dict[str, str] = {}
    for name, annotation, _, spelled in fields:
        if name == CALL or (kind == "mutation" and spelled == SUBKEY):
            raise ConnectorDefinitionError(where, f"parameter {name!r} is reserved; choose another name")
        if problem := problem_with_parameter(spelled, name):
            raise ConnectorDefinitionError(where, f"parameter name {problem}; choose another")
        if name in names or spelled in names.values():
            raise ConnectorDefinitionError(where, f"two parameters have the name {spelled!r}; rename one")
        _check_type(where, f"parameter {name!r}", annotation)
        names[name] = spelled
    _check_type(where, "the result", result)
    struct = _struct(where, where, [(name, annotation, default) for name, annotation, default, _ in fields], names)
    return Signature(struct, names, True, result)


def _hints(where: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        what = f"an annotation cannot be resolved ({error}); define its types at module level, above the class"
        raise ConnectorDefinitionError(where, what) from error


def _annotation(where: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.VAR_KEYWORD:
            what = f"takes {str(parameter).partition(':')[0]}; a script passes one object, so name each parameter"
            raise ConnectorDefinitionError(where, what)
        case inspect.Parameter.POSITIONAL_ONLY:
            what = f"parameter {parameter.name!r} is positional only; parameters are passed by name: remove the `/`"
            raise ConnectorDefinitionError(where, what)
        case _ if parameter.name not in hints:
            what = f"parameter {parameter.name!r} has no annotation; write `{parameter.name}: <type>`"
            raise ConnectorDefinitionError(where, what)
    return hints[parameter.name]


def _is_the_call(where: str, kind: MethodKind, name: str, annotation: Any) -> bool:
    expected = _CALL_TYPES[kind]
    if name == CALL and annotation is expected:
        return True
    if name == CALL:
        what = f"parameter 'call' is reserved: annotate it {expected.__name__} (this is a {kind}), or rename it"
        raise ConnectorDefinitionError(where, what)
    if annotation in _CALL_TYPES.values():
        raise ConnectorDefinitionError(where, f"parameter {name!r} is a {annotation.__name__}; name it `call`")
    return False


def _javascript_name(where: str, kind: MethodKind, name: str, taken: Mapping[str, str]) -> str:
    spelled = camel_case(name)
    if kind == "mutation" and spelled == SUBKEY:
        what = f"parameter {name!r} is reserved: scripts tell two equal mutations apart by it; choose another name"
        raise ConnectorDefinitionError(where, what)
    if problem := problem_with_parameter(spelled, name):
        raise ConnectorDefinitionError(where, f"parameter name {problem}; choose another")
    for other, other_spelled in taken.items():
        if other_spelled == spelled:
            what = f"parameters {other!r} and {name!r} are both {spelled!r} in JavaScript; rename one"
            raise ConnectorDefinitionError(where, what)
    return spelled


def _check_type(where: str, what: str, annotation: Any) -> None:
    try:
        msgspec.json.Decoder(annotation)
        msgspec.json.schema(annotation)
    except (TypeError, NameError) as error:
        reason = str(error).splitlines()[-1]
        raise ConnectorDefinitionError(where, f"{what} cannot be JSON: {reason}") from error


def _check_default(where: str, parameter: inspect.Parameter, annotation: Any) -> None:
    if parameter.default is msgspec.UNSET:
        return
    try:
        msgspec.json.decode(msgspec.json.encode(parameter.default), type=annotation)
    except _UNFIT as error:
        what = f"the default of parameter {parameter.name!r} does not fit its annotation: {error}"
        raise ConnectorDefinitionError(where, what) from error


def _struct(
    where: str, title: str, fields: Sequence[tuple[str, Any] | tuple[str, Any, Any]], names: Mapping[str, str]
) -> type[msgspec.Struct]:
    try:
        return msgspec.defstruct(title, fields, rename=names, kw_only=True, frozen=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise ConnectorDefinitionError(where, f"its parameters cannot be made into a struct: {error}") from error
