"""`kind = "http"`: calls of a web service, declared by an operator."""

from typing import Any, ClassVar, Final

from keep_actors.outbound.web import Web
from keep_actors.services.http.endpoint import HttpEndpoint
from keep_actors.services.http.methods import offered
from keep_actors.services.http.operation import HttpOperation, ParameterPlace, Placed
from keep_actors.services.http.settings import HttpCall, HttpSettings, Typed
from keep_actors.services.http.value_types import schema_of
from keep_actors.services.json_schema import Field, SchemaTypes, SchemaUnusable
from keep_actors.services.service import Service, SettingsError
from keep_storage.ids import Now, wall_clock

BODY: Final = "body"


class Http(Service):
    """One web service."""

    name = "http"
    settings_type: ClassVar = HttpSettings

    def __init__(
        self, settings: HttpSettings, *, name: str | None = None, web: Web | None = None, now: Now = wall_clock
    ) -> None:
        """`web` stands in for the client and `now` for the clock, in tests. Raises `SettingsError`."""
        super().__init__(settings, name=name)
        if not settings.calls:
            raise SettingsError("calls", f"is empty; write a section [connectors.{self.name}.calls.NAME]")
        self._endpoint = HttpEndpoint(settings, name=self.name, web=web, now=now)
        self.hide(*self._endpoint.hidden)
        self.offer(
            offered(_operation(f"{self.name}.{name}", name, call), self._endpoint)
            for name, call in settings.calls.items()
        )

    async def open(self) -> None:
        """Prepare the client. Connects to nothing."""
        await self._endpoint.open()

    async def close(self) -> None:
        """Close all connections."""
        await self._endpoint.close()


def _operation(title: str, name: str, call: HttpCall) -> HttpOperation:
    where = f"calls.{name}"
    return HttpOperation(
        name=name,
        method=call.method.upper(),
        path=call.path,
        parameters=_parameters(title, where, call),
        body=call.encoding,
        answer=call.answer,
        result=_result(title, where, call),
        description=call.description,
        rules=call,
    )


def _parameters(title: str, where: str, call: HttpCall) -> list[Placed]:
    whole = isinstance(call.body, str)
    given: list[tuple[str, ParameterPlace, str, Typed]] = [
        *(("parameters", ParameterPlace.PATH, wire, typed) for wire, typed in call.parameters.items()),
        *(("query", ParameterPlace.QUERY, wire, typed) for wire, typed in call.query.items()),
        # In lower case, as HTTP reads them: `If-Match` is `ifMatch` in scripts.
        *(
            ("header_parameters", ParameterPlace.HEADER, name.lower(), typed)
            for name, typed in call.header_parameters.items()
        ),
    ]
    if isinstance(call.body, str):
        given.append((BODY, ParameterPlace.WHOLE, BODY, call.body))
    else:
        given += [(BODY, ParameterPlace.BODY, wire, typed) for wire, typed in call.body.items()]
    types = SchemaTypes(title)
    placed: list[Placed] = []
    fields: list[Field] = []
    for setting, place, wire, typed in given:
        at = f"{where}.{setting}" if whole and place is ParameterPlace.WHOLE else f"{where}.{setting}.{wire}"
        if any(each.wire == wire for each in fields):
            raise SettingsError(at, "is there twice: a script passes one object with all parameters; rename one")
        schema, is_required = schema_of(typed, at)
        try:
            fields.append(types.field(wire, schema, is_required, taken=fields))
        except SchemaUnusable as error:
            raise SettingsError(at, str(error)) from None
        placed.append(Placed(fields[-1], place))
    return placed


def _result(title: str, where: str, call: HttpCall) -> Any:
    if call.answer != "json":
        if call.result != "any":
            raise SettingsError(f"{where}.result", 'needs answer = "json"')
        return str if call.answer == "text" else None
    schema, is_required = schema_of(call.result, f"{where}.result")
    try:
        found = SchemaTypes(f"{title}-result", is_given=False).type(schema)
    except SchemaUnusable as error:
        raise SettingsError(f"{where}.result", str(error)) from None
    return found if is_required else found | None
