"""A class that cannot work is refused when it is defined, with its place and what to do."""

from textwrap import dedent, indent
from typing import Any

import pytest

from keep_actors import connectors
from keep_actors.connectors import ConnectorDefinitionError

APPEND = """
@mutation(identity=["row"])
async def append(self, row: str, text: str) -> None: ...
"""

REFUSED = {
    "a parameter without annotation": (
        "@read\nasync def rows(self, limit) -> int: ...",
        "Sheets.rows: parameter 'limit' has no annotation; write `limit: <type>`",
    ),
    "a result without annotation": (
        "@read\nasync def rows(self): ...",
        "Sheets.rows: has no return annotation; write `-> <type>`, or `-> None`",
    ),
    "any number of arguments": (
        "@read\nasync def rows(self, *args: str) -> int: ...",
        "Sheets.rows: takes *args; a script passes one object, so name each parameter",
    ),
    "any keyword": (
        "@read\nasync def rows(self, **options: str) -> int: ...",
        "Sheets.rows: takes **options; a script passes one object",
    ),
    "a positional parameter": (
        "@read\nasync def rows(self, limit: int, /) -> int: ...",
        "Sheets.rows: parameter 'limit' is positional only",
    ),
    "no self": (
        "@read\nasync def rows(limit: int) -> int: ...",
        "Sheets.rows: the first parameter must be `self`",
    ),
    "a method that is not async": (
        "@read\ndef rows(self) -> int: ...",
        "Sheets.rows: a read is awaited; write `async def`",
    ),
    "an async generator": (
        "@mutation\nasync def send(self) -> int:\n    yield 1",
        "Sheets.send: a mutation is awaited; write `async def`",
    ),
    "an annotation that does not exist": (
        "@read\nasync def rows(self, limit: 'Nowhere') -> int: ...",
        "Sheets.rows: an annotation cannot be resolved (name 'Nowhere' is not defined); define its types at module",
    ),
    "a parameter that JSON cannot carry": (
        "@read\nasync def rows(self, session: Session) -> int: ...",
        "Sheets.rows: parameter 'session' cannot be JSON: type",
    ),
    "a result that JSON cannot carry": (
        "@read\nasync def rows(self) -> list[Session]: ...",
        "Sheets.rows: the result cannot be JSON: type",
    ),
    "a default of another type": (
        "@read\nasync def rows(self, limit: int = None) -> int: ...",
        "Sheets.rows: the default of parameter 'limit' does not fit its annotation: Expected `int`, got `null`",
    ),
    "a default that calls would share": (
        "@read\nasync def rows(self, tags: list[str] = ['a']) -> int: ...",
        "Sheets.rows: its parameters cannot be made into a struct: Using a non-empty mutable collection",
    ),
    "two parameters with one name": (
        "@read\nasync def rows(self, row_id: str, rowId: str) -> int: ...",
        "Sheets.rows: parameters 'row_id' and 'rowId' are both 'rowId' in JavaScript; rename one",
    ),
    "a parameter with an underscore in front": (
        "@read\nasync def rows(self, _row: str) -> int: ...",
        "Sheets.rows: parameter name '_row' starts with an underscore; choose another",
    ),
    "a parameter that is no identifier in JavaScript": (
        "@read\nasync def rows(self, größe: str) -> int: ...",
        "Sheets.rows: parameter name 'größe' is not a JavaScript identifier",
    ),
    "the call of a mutation in a read": (
        "@read\nasync def rows(self, call: MutationCall) -> int: ...",
        "Sheets.rows: parameter 'call' is reserved: annotate it ReadCall (this is a read), or rename it",
    ),
    "the call of a read in a mutation": (
        "@mutation\nasync def send(self, call: ReadCall) -> int: ...",
        "Sheets.send: parameter 'call' is reserved: annotate it MutationCall (this is a mutation), or rename it",
    ),
    "a call that is the script's": (
        "@read\nasync def rows(self, call: str) -> int: ...",
        "Sheets.rows: parameter 'call' is reserved",
    ),
    "a call by another name": (
        "@read\nasync def rows(self, context: ReadCall) -> int: ...",
        "Sheets.rows: parameter 'context' is a ReadCall; name it `call`",
    ),
    "the subkey of a mutation": (
        "@mutation\nasync def send(self, subkey: str) -> int: ...",
        "Sheets.send: parameter 'subkey' is reserved: scripts tell two equal mutations apart by it",
    ),
    "two methods with one name": (
        "@read\nasync def get_row(self) -> int: ...\n@read\nasync def getRow(self) -> int: ...",
        "Sheets.getRow: is 'getRow' in JavaScript, and so is get_row; rename one",
    ),
    "two methods with one given name": (
        "@read\nasync def rows(self) -> int: ...\n@mutation(name='rows')\nasync def write(self) -> int: ...",
        "Sheets.write: is 'rows' in JavaScript, and so is rows; rename one",
    ),
    "a method name that is no identifier": (
        "@read(name='get-row')\nasync def rows(self) -> int: ...",
        "Sheets.rows: 'get-row' is not a JavaScript identifier; rename it, or write `@read(name=\"…\")`",
    ),
    "a method name that JavaScript looks for": (
        "@mutation\nasync def then(self) -> int: ...",
        "Sheets.then: 'then' has a special meaning in JavaScript; rename it, or write `@mutation(name=\"…\")`",
    ),
    "a private method": (
        "@read\nasync def _rows(self) -> int: ...",
        "Sheets._rows: is private; remove the underscore",
    ),
    "a method in the place of the lifecycle": (
        "@mutation\nasync def open(self) -> int: ...",
        'Sheets.open: is reserved; rename the method and decorate it with `name="open"`',
    ),
    "a lifecycle that is not async": (
        "def close(self) -> None: ...",
        "Sheets.close: is awaited; write `async def`",
    ),
    "a risk that does not exist": (
        "@read(risk='extreme')\nasync def rows(self) -> int: ...",
        "Sheets.rows: risk is 'extreme'; it must be one of low, medium, high",
    ),
    "an empty permission": (
        "@read(permission='')\nasync def rows(self) -> int: ...",
        "Sheets.rows: permission is empty",
    ),
    "no time at all": (
        "@read(timeout_ms=0)\nasync def rows(self) -> int: ...",
        "Sheets.rows: timeout_ms is 0; it must be > 0, or None",
    ),
    "a time to settle that is negative": (
        "@mutation(settle_ms=-1)\nasync def send(self) -> int: ...",
        "Sheets.send: settle_ms is -1; it must be >= 0",
    ),
    "a page to check that is no page": (
        "@mutation(check_url='javascript:alert(1)')\nasync def send(self) -> int: ...",
        "Sheets.send: check_url is 'javascript:alert(1)'; it must start with https://",
    ),
    "an identity that is no parameter": (
        "@mutation(identity=['rowId'])\nasync def send(self, row_id: str, call: MutationCall) -> int: ...",
        "Sheets.send: identity names 'rowId', which is not a parameter; there are: row_id",
    ),
    "an identity that is one string": (
        "@mutation(identity='row')\nasync def send(self, row: str) -> int: ...",
        "Sheets.send: identity must be a list of names; write `['row']`",
    ),
    "a reconcile method that is not async": (
        APPEND + "@append.reconcile\ndef find(self, call): ...",
        "Sheets.append: its reconcile method must be `async def …(self, call: MutationCall)",
    ),
    "a reconcile method that wants more": (
        APPEND + "@append.reconcile\nasync def find(self, call, row): ...",
        "Sheets.append: its reconcile method must be `async def …(self, call: MutationCall)",
    ),
    "two reconcile methods": (
        APPEND + "@append.reconcile\nasync def a(self, call): ...\n@append.reconcile\nasync def b(self, call): ...",
        "Sheets.append: has two reconcile methods; keep one",
    ),
    "a reconcile method with the name of its mutation": (
        APPEND + "@append.reconcile\nasync def append(self, call): ...",
        "Sheets.append: its reconcile method has the same name; give it another",
    ),
    "a comparison that is async": (
        APPEND + "@append.compare_payload\nasync def same(self, old, new): ...",
        "Sheets.append: its compare_payload method must be `def …(self, old, new)`, not async",
    ),
    "a comparison of nothing": (
        '@mutation(identity=["row"])\nasync def send(self, row: str) -> int: ...\n'
        "@send.compare_payload\ndef same(self, old, new): ...",
        "Sheets.send: has a compare_payload method but no payload; remove parameters that may change from `identity`",
    ),
}


def define(body: str, head: str = 'class Sheets(Connector):\n    name = "sheets"\n') -> None:
    class Session:
        pass

    names: dict[str, Any] = {**vars(connectors), "Session": Session, "__name__": __name__}
    exec(head + indent(dedent(body), "    "), names)


@pytest.mark.parametrize("case", REFUSED)
def test_a_class_is_refused_for(case: str) -> None:
    body, text = REFUSED[case]
    with pytest.raises(ConnectorDefinitionError) as refused:
        define(body)
    assert text in str(refused.value)


READ = "@read\nasync def rows(self) -> int: ..."


@pytest.mark.parametrize("name", ["peek", "getByIds", "publish", "withItem", "item"])
def test_a_connector_cannot_take_the_place_of_what_ctx_has_of_its_own(name: str) -> None:
    with pytest.raises(ConnectorDefinitionError) as refused:
        define(READ, f"class Sheets(Connector):\n    name = {name!r}\n")
    assert str(refused.value) == f"Sheets: name '{name}' is a member of ctx itself; choose another"


@pytest.mark.parametrize("name", ["my-sheets", "my.sheets", "2sheets", "", "größe", "then", "__proto__"])
def test_a_connector_cannot_be_called_what_javascript_cannot_say(name: str) -> None:
    with pytest.raises(ConnectorDefinitionError, match=r"Sheets: name .*; choose another"):
        define(READ, f"class Sheets(Connector):\n    name = {name!r}\n")


def test_a_connector_with_methods_has_a_name() -> None:
    with pytest.raises(ConnectorDefinitionError, match="Sheets: has no name; write `name ="):
        define(READ, "class Sheets(Connector):\n")


def test_a_derived_class_cannot_drop_a_method_by_accident() -> None:
    base = f'class Base(Connector):\n    name = "sheets"\n{indent(READ, "    ")}\n'
    with pytest.raises(ConnectorDefinitionError, match=r"Sheets\.rows: replaces a read, but is not decorated"):
        define("async def rows(self) -> int: ...", f"{base}class Sheets(Base):\n")


def test_an_error_that_promises_cannot_be_uncertain() -> None:
    with pytest.raises(ConnectorDefinitionError, match="Lost: promises that nothing happened"):
        define("failure_class = Transient.failure_class.INDETERMINATE", "class Lost(ConnectorError):\n")
