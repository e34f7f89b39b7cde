"""Documents and settings that are refused: the message names the operation, the place, and what to do."""

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from keep_actors.connectors import Catalog
from keep_actors.outbound.secret import Secret
from keep_actors.services import SettingsError, load_configuration
from keep_actors.services.openapi import OpenApi, OpenApiReconcile, OpenApiRules
from tests.services.openapi.echo import ECHO, echo_settings

Change = Callable[[dict[str, Any]], object]


def refused(folder: Path, document: dict[str, Any], **more: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        OpenApi(echo_settings(folder, 1, document, **more), name="echo")
    return str(caught.value)


def put(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["paths"]["/things/{id}"]["post"]
    return found


def parameter(**about: Any) -> Change:
    """Put this parameter into the operation."""
    return lambda document: put(document)["parameters"].append({"name": "p", "in": "query", "schema": {}, **about})


def thing(schema: Mapping[str, Any]) -> Change:
    return lambda document: document["components"]["schemas"].update(Thing=schema)


CIRCLE = {"$ref": "#/components/parameters/A"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (parameter(style="deepObject"), 'the query parameter "p": is written in the style "deepObject"'),
        (parameter(**{"in": "cookie", "required": True}), 'the cookie parameter "p": is not understood there'),
        (parameter(**{"in": "header", "name": "Host"}), 'the header parameter "Host": is a header of the connection'),
        (parameter(**{"in": "path", "required": True}), 'its path parameters are "id", "p"'),
        (lambda it: put(it)["parameters"].append({"name": "p", "in": "query"}), "`content` is not understood"),
        (lambda it: put(it)["parameters"].append({"in": "query"}), "a parameter: name: is required"),
        (lambda it: put(it)["parameters"].append(CIRCLE), "which the document does not have"),
        (
            lambda it: (put(it)["parameters"].append(CIRCLE), it["components"]["parameters"].update(A=CIRCLE)),
            "a circle leads nowhere",
        ),
        (
            lambda it: put(it)["parameters"].append({"$ref": "https://example.org/p.json"}),
            'refers to "https://example.org/p.json", which is not in this document',
        ),
        (
            lambda it: put(it)["parameters"].append({"$ref": "other.json#/p"}),
            'refers to "other.json#/p", which is not in this document',
        ),
        (lambda it: put(it).update(requestBody={"content": {"text/csv": {}}}), 'the body: is "text/csv"; only JSON'),
        (
            lambda it: put(it)["responses"].update({"200": {"content": {"image/png": {}}}}),
            "is answered with \"image/png\"; write answer = 'text' or answer = 'none'",
        ),
        (thing({"$ref": "file:///etc/passwd"}), '"file:///etc/passwd"'),
        (thing({"$ref": "#/components/schemas/None"}), "which is not there"),
        (thing({"type": "object", "properties": {"a\u202e": {}}}), "cannot be seen"),
        (lambda it: it["paths"]["/things/{id}"].update(get={"operationId": "put-thing"}), "is the operationId of"),
        (lambda it: put(it).update(security=[{"S": []}]), 'needs the credentials "S"'),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(tmp_path: Path, change: Change, words: str) -> None:
    document = copy.deepcopy(ECHO)
    change(document)
    said = refused(tmp_path, document)
    assert said.startswith('operations."put-thing"')
    assert words in said


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"operations": {}}, "operations: none is chosen"),
        (
            {"operations": {"putThing": OpenApiRules()}},
            'no such operation; write an operationId or a method and path: "put-thing"',
        ),
        ({"operations": {"POST /thing": OpenApiRules()}}, '"POST /things/{id}"'),
        (
            {"operations": {"getThing": OpenApiRules(spread_body=True)}},
            '"getThing".spread_body: the operation has no body',
        ),
        (
            {"operations": {"put-thing": OpenApiRules(untyped=("x",))}},
            "untyped: 'x' is no parameter; there are: \"id\"",
        ),
        ({"operations": {"put-thing": OpenApiRules(identity=["x"])}}, "x"),
        ({"base_url": ""}, "base_url: is missing, and the document names no server"),
        ({"auth": {"S": Secret("abcd")}}, "auth.S: the document has no such security scheme; there are: none"),
        ({"base_url": "http://example.org"}, "base_url: is not encrypted"),
        ({"seen": "0" * 64}, "seen: "),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    assert words in refused(tmp_path, ECHO, **settings)


@pytest.mark.parametrize(
    ("reconcile", "words"),
    [
        (OpenApiReconcile(operation="put-thing"), 'reconcile: "put-thing" is a POST; only a GET finds out'),
        (OpenApiReconcile(operation="getThing"), 'the path needs "id"; write it in parameters'),
        (OpenApiReconcile(operation="getThing", path="/x"), "has an operation and a path; write one"),
        (OpenApiReconcile(path="/x", parameters={"a": 1}), "`parameters` belong to an operation"),
        (
            OpenApiReconcile(operation="getThing", parameters={"id": "$id", "no": 1}, found={"key": "$key"}),
            "has no parameter 'no' in its URL",
        ),
    ],
)
def test_a_reconcile_that_cannot_work_is_refused(tmp_path: Path, reconcile: OpenApiReconcile, words: str) -> None:
    assert words in refused(tmp_path, ECHO, operations={"put-thing": OpenApiRules(reconcile=reconcile)})


@pytest.mark.parametrize(
    ("scheme", "secret", "words"),
    [
        ({"type": "apiKey", "in": "query", "name": "k"}, "abcd", 'is a key in the "query", where logs keep it'),
        ({"type": "apiKey", "in": "header", "name": "Host"}, "abcd", 'the header "Host", which cannot be written'),
        ({"type": "apiKey", "in": "header", "name": "A\r\nB"}, "abcd", "which cannot be written"),
        ({"type": "http", "scheme": "basic"}, "no-colon", "the secret is written user:password"),
        ({"type": "http", "scheme": "digest"}, "abcd", "is a security scheme that is not understood"),
        ({"type": "mutualTLS"}, "abcd", "is a security scheme that is not understood"),
    ],
)
def test_a_security_scheme_that_is_not_understood_is_refused(
    tmp_path: Path, scheme: dict[str, Any], secret: str, words: str
) -> None:
    document = {**ECHO, "components": {**ECHO["components"], "securitySchemes": {"S": scheme}}}
    said = refused(tmp_path, document, auth={"S": Secret(secret)})
    assert said.startswith("auth.S: ")
    assert words in said
    assert secret not in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("openapi: 3.1.0", "is not JSON; write a document of YAML as JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"swagger": "2.0"}', "write OpenAPI 3.0 or 3.1"),
        ('{"openapi": "4.0.0"}', 'has the version "4.0.0"'),
        ("[]", "write OpenAPI 3.0 or 3.1"),
        (f'{{"openapi": "3.1.0", "x": {"[" * 600}{"]" * 600}}}', "is nested too deep"),
    ],
    ids=["yaml", "deep", "swagger", "future", "list", "nested"],
)
def test_a_file_that_is_no_such_document_is_refused(tmp_path: Path, content: str, words: str) -> None:
    settings = echo_settings(tmp_path, 1)
    settings.document.write_text(content, "utf-8")
    with pytest.raises(SettingsError) as caught:
        OpenApi(settings, name="echo")
    assert words in str(caught.value)


def test_a_document_that_changed_since_a_person_saw_it_is_refused(tmp_path: Path) -> None:
    content = json.dumps(ECHO).encode()
    seen = hashlib.sha256(content).hexdigest()
    OpenApi(echo_settings(tmp_path, 1, seen=seen), name="echo")
    changed = {**ECHO, "info": {"title": "Another", "version": "1"}}
    said = refused(tmp_path, changed, seen=seen)
    assert "look at what changed, then write" in said
    assert hashlib.sha256(json.dumps(changed).encode()).hexdigest() in said


@pytest.mark.parametrize(
    ("url", "more", "words"),
    [
        ("https://api.example.org/v1", {}, ""),
        ("https://api.example.org/v1", {"bearer": Secret("abcd")}, "a document does not choose where secrets go"),
        ("https://api.example.org/v1", {"allow": ["127.0.0.1:1"]}, "a document does not choose"),
        ("http://api.example.org/v1", {}, "names no server with https"),
        ("/v1", {}, "names no server with https"),
        ("https://{region}.example.org", {}, "names no server with https"),
    ],
)
def test_a_server_of_the_document_is_used_only_where_nothing_is_at_stake(
    tmp_path: Path, url: str, more: dict[str, Any], words: str
) -> None:
    settings = echo_settings(tmp_path, 1, {**ECHO, "servers": [{"url": url}]}, **{"base_url": "", "allow": [], **more})
    if not words:
        assert "echo.getThing" in Catalog([OpenApi(settings, name="echo")]).methods
        return
    with pytest.raises(SettingsError) as caught:
        OpenApi(settings, name="echo")
    assert str(caught.value).startswith("base_url: ")
    assert words in str(caught.value)


def test_a_file_of_settings_names_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHO_TOKEN", "token-0123")
    (tmp_path / "echo.json").write_text(json.dumps(ECHO), "utf-8")
    (tmp_path / "keep.toml").write_text(
        """
[connectors.echo]
kind = "openapi"
document = "echo.json"
base_url = "https://echo.example.org"
bearer = { env = "ECHO_TOKEN" }

[connectors.echo.operations."POST /things/{id}"]
name = "put"
risk = "high"
identity = ["id"]
replay = true
key_lifetime = "24h"

[connectors.echo.operations.getThing]
by_id = true
""",
        "utf-8",
    )
    methods = Catalog(load_configuration(tmp_path / "keep.toml")).methods
    assert {name: method.kind for name, method in methods.items()} == {"echo.put": "mutation", "echo.getThing": "read"}
    assert (methods["echo.put"].risk, methods["echo.put"].reconcilable) == ("high", True)
