"""A tool as an offered method: its parameters, its kind, its call, and the way to find out what became of it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from keep_actors.connectors import Applied, MutationCall, NotApplied, Offered, Options, ReadCall, Retry, Verdict
from keep_actors.connectors.names import camel_case, problem_with_method
from keep_actors.services.json_schema import Field, SchemaTypes, SchemaUnusable, to_wire
from keep_actors.services.mcp.answers import (
    EACH,
    NOWHERE,
    ParamLeftOut,
    PathUnusable,
    ToolAnswer,
    filled,
    places_in,
    searchable,
    steps,
    values_at,
)
from keep_actors.services.mcp.granted import GrantedTool, shown
from keep_actors.services.mcp.mapping import ToolStanding
from keep_actors.services.mcp.outcomes import CallFailed, ToolProblem, mutation_outcome, read_outcome
from keep_actors.services.mcp.passage import Passage
from keep_actors.services.mcp.settings import ToolReconcile, ToolSettings
from keep_actors.services.service import SettingsError
from keep_actors.text.visible import left_out, quoted
from keep_storage.limits import NOTE_CHARS_MAX

if TYPE_CHECKING:
    from keep_actors.services.mcp.connector import Mcp

KEY_META: Final = "keep-actors/idempotency-key"
"""The name in `_meta` under which every mutation carries its key. A server that does not know it ignores it."""
DESCRIPTION_MAX: Final = 1_000
PARAM_DESCRIPTION_MAX: Final = 200
_PARAMS_SHOWN_MAX: Final = 30


class ToolMethod:
    """One tool that is offered."""

    def __init__(
        self, connector: str, tool: GrantedTool, standing: ToolStanding, word: ToolSettings, timeout_ms: int
    ) -> None:
        self.tool = tool
        self.standing = standing
        self.word = word
        self.where = f"tools.{tool.name}"
        self.name = word.name or _script_name(tool.name, self.where)
        self.timeout_ms = word.timeout_ms or timeout_ms
        full_name = f"{connector}.{self.name}"
        try:
            given = SchemaTypes(full_name).fields(tool.input_schema)
            self.result_type = (
                ToolAnswer
                if tool.output_schema is None
                else SchemaTypes(f"{full_name}-result", is_given=False).type(tool.output_schema)
            )
        except SchemaUnusable as error:
            what = f'its schema cannot be used: {error}; leave the tool out by kind = "off"'
            raise SettingsError(self.where, what) from None
        self.fields = [each for each in given if each.wire != word.key_argument]
        if word.key_argument and len(self.fields) == len(given):
            raise SettingsError(f"{self.where}.key_argument", f"the tool has no argument {word.key_argument!r}")

    def offered(self, reader: "ToolMethod | None") -> Offered:
        """The method, with what finds out its outcome. Raises `SettingsError`."""
        options = Options(
            kind=self.standing.kind,
            risk=self.standing.risk,
            name=self.name,
            by_id=self.standing.by_id,
            timeout_ms=self.timeout_ms,
            marks_sent=self.standing.kind == "mutation",
            settle_ms=self.word.settle_ms,
            identity=self._identity(),
            check_hint=self._hint() if self.standing.kind == "mutation" else "",
        )
        return Offered(
            function=self._read if self.standing.kind == "read" else self._mutate,
            options=options,
            params=[each.param() for each in self.fields],
            result=self.result_type,
            description=described(self.tool, self.fields),
            reconciler=self._reconciler(reader),
        )

    async def read(self, connector: "Mcp", arguments: Mapping[str, Any]) -> ToolAnswer:
        """Call the tool as a read. Raises `ConnectorError`."""
        try:
            return await self._called(connector, arguments, {}, Passage())
        except CallFailed as failed:
            raise read_outcome(failed) from failed

    @property
    def _read(self) -> Any:
        async def read(connector: "Mcp", /, *, call: ReadCall, **values: Any) -> Any:  # noqa: ARG001
            return self._result(await self.read(connector, to_wire(self.fields, values)))

        return read

    @property
    def _mutate(self) -> Any:
        async def mutate(connector: "Mcp", /, *, call: MutationCall, **values: Any) -> Any:
            passage = Passage(call.sending)
            try:
                return self._result(await self._sent(connector, values, call.idempotency_key, passage))
            except CallFailed as failed:
                if failed.task_id:
                    await call.note(f"task {quoted(failed.task_id, NOTE_CHARS_MAX - 10)[0]}")
                raise mutation_outcome(failed, is_sent=passage.is_sent, error_means=self.word.error_means) from failed

        return mutate

    async def _again(self, connector: "Mcp", call: MutationCall) -> Verdict:
        """Make the same call again, with its key, which changes nothing more. An error of any kind settles nothing."""
        try:
            return Applied(self._result(await self._sent(connector, call.params, call.idempotency_key, Passage())))
        except CallFailed as failed:
            raise read_outcome(failed) from failed

    async def _sent(self, connector: "Mcp", values: Mapping[str, Any], key: str, passage: Passage) -> ToolAnswer:
        arguments = to_wire(self.fields, values)
        if self.word.key_argument:
            arguments[self.word.key_argument] = key
        meta = dict.fromkeys(sorted({KEY_META, self.word.key_meta} - {""}), key)
        return await self._called(connector, arguments, meta, passage)

    async def _called(
        self, connector: "Mcp", arguments: Mapping[str, Any], meta: Mapping[str, Any], passage: Passage
    ) -> ToolAnswer:
        answer, is_error = await connector.server.call(self.tool.name, arguments, meta, passage, self.timeout_ms / 1000)
        if is_error:
            raise CallFailed(ToolProblem.TOOL_ERROR, answer.text)
        if self.tool.output_schema is not None and answer.data is None:
            raise CallFailed(ToolProblem.MISFIT, "it has no structured content")
        return answer

    def _result(self, answer: ToolAnswer) -> Any:
        return answer if self.tool.output_schema is None else answer.data

    def _identity(self) -> list[str] | None:
        if self.word.identity is None:
            return None
        by_wire = {each.wire: each.name for each in self.fields}
        for wire in self.word.identity:
            if wire not in by_wire:
                raise SettingsError(f"{self.where}.identity", f"the tool has no argument {wire!r}")
        return [by_wire[wire] for wire in self.word.identity]

    def _hint(self) -> str:
        return f"look where the tool {shown(self.tool.name)} of this server has its effects"

    def _repeater(self) -> Any:
        async def again(connector: "Mcp", call: MutationCall) -> Verdict:
            return await self._again(connector, call)

        return again

    def _reconciler(self, reader: "ToolMethod | None") -> Any:
        if self.word.repeat_is_safe:
            if not self.tool.hints.idempotent:
                words = "the server does not say that the tool is idempotent; leave it out, or declare a reconcile"
                raise SettingsError(f"{self.where}.repeat_is_safe", words)
            return self._repeater()
        if self.word.reconcile is None:
            return None
        assert reader is not None, "the connector has looked it up"
        return Finder(self, reader, self.word.reconcile).reconciler


class Finder:
    """Finds out if the effect of a call is there, by a tool that reads."""

    def __init__(self, method: ToolMethod, reader: ToolMethod, how: ToolReconcile) -> None:
        self._method = method
        self._reader = reader
        self._how = how
        where = f"{method.where}.reconcile"
        self._known = {f"params.{each.wire}" for each in method.fields} | {"key"}
        for word in ("arguments", "equals"):
            self._check_places(f"{where}.{word}", getattr(how, word))
        if not [*places_in(how.arguments), *places_in(how.equals)]:
            raise SettingsError(where, "it would find the same for every call; write {key} or {params.…} in it")
        try:
            path = steps(how.found)
            result = steps(how.result)
        except PathUnusable as error:
            raise SettingsError(where, str(error)) from None
        last = len(path) - path[::-1].index(EACH) if EACH in path else 0
        self._items, self._inside, self._result = path[:last], path[last:], result

    @property
    def reconciler(self) -> Any:
        """The function that the host awaits."""

        async def find(connector: "Mcp", call: MutationCall) -> Verdict:
            params = to_wire(self._method.fields, call.params)
            try:
                arguments = filled(self._how.arguments, call.idempotency_key, params)
                wanted = filled(self._how.equals, call.idempotency_key, params)
            except ParamLeftOut as error:
                return Retry(f"it cannot be looked for: {error}")
            return self._verdict(await self._reader.read(connector, arguments), wanted)

        return find

    def _verdict(self, answer: ToolAnswer, wanted: Any) -> Verdict:
        """`NotApplied` only for an answer that has the place where the effect would be."""
        items = list(values_at(searchable(answer), self._items))
        is_readable = not items
        for item in items:
            inside = [] if item is NOWHERE else list(values_at(item, self._inside))
            if any(_same(each, wanted) for each in inside):
                return self._applied(answer, item)
            is_readable = is_readable or (item is not NOWHERE and any(each is not NOWHERE for each in inside or [None]))
        if NOWHERE in items or not is_readable:
            return Retry(f"the answer of {shown(self._reader.tool.name)} has nothing at {self._how.found}")
        return NotApplied()

    def _applied(self, answer: ToolAnswer, item: Any) -> Verdict:
        inner = next(values_at(item, self._result), NOWHERE)
        if inner is NOWHERE:
            words = f"the effect is there, and the answer of {shown(self._reader.tool.name)} has no {self._how.result}"
            return Retry(words)
        if self._method.tool.output_schema is not None:
            return Applied(inner)
        text = inner if isinstance(inner, str) else msgspec.json.encode(inner).decode()
        return Applied(ToolAnswer(text) if self._result or self._items else ToolAnswer(answer.text, answer.data))

    def _check_places(self, where: str, template: Any) -> None:
        for place in places_in(template):
            if place not in self._known:
                raise SettingsError(where, f"there is no {{{place}}}; there are: {', '.join(sorted(self._known))}")


def _same(value: Any, wanted: Any) -> bool:
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def _script_name(tool_name: str, where: str) -> str:
    name = camel_case("".join(char if char.isalnum() or char == "$" else "_" for char in tool_name))
    if problem := problem_with_method(name):
        raise SettingsError(where, f'{problem}; write name = "…"')
    return name


def described(tool: GrantedTool, fields: Sequence[Field]) -> str:
    """The server's words about a tool: foreign text, quoted and bounded."""
    says = tool.description or tool.title or ""
    lines = [f"The server says: {_quoted(says, DESCRIPTION_MAX)}"] if says.strip() else []
    said = [each for each in fields if each.description.strip()]
    lines += [
        f"{each.spelled}: {_quoted(each.description, PARAM_DESCRIPTION_MAX)}" for each in said[:_PARAMS_SHOWN_MAX]
    ]
    return "\n".join(lines)


def _quoted(text: str, most: int) -> str:
    words, more = quoted(" ".join(text.split()), most)
    return f"{words}{left_out(more)}" if more else words
