"""Checks of a declared operation: what cannot work, or could prove nothing, is refused before it is called. Pure."""

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from keep_actors.outbound.web import header_problem
from keep_actors.services.http.address import places_in
from keep_actors.services.http.endpoint import CREDENTIAL_HEADERS, OWN_HEADERS, HttpEndpoint
from keep_actors.services.http.operation import READING, HttpOperation, ParameterPlace
from keep_actors.services.http.reconcile import KEY, MARGIN_MS_MIN
from keep_actors.services.http.settings import HttpReconcile, Plain, read_duration_ms
from keep_actors.services.service import SettingsError

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
LIFETIME_MS_MIN: Final = 2 * MARGIN_MS_MIN
KEY_CHARS: Final = range(32, 65)

RuleProblem: TypeAlias = tuple[str, str]
"""The setting, and what is wrong with it."""


def check_operation(operation: HttpOperation, endpoint: HttpEndpoint, where: str) -> None:
    """Raise `SettingsError` for the first thing that is wrong."""
    for check in _CHECKS:
        for setting, what in check(operation, endpoint):
            raise SettingsError(f"{where}.{setting}", what)


def _method(operation: HttpOperation, _: HttpEndpoint) -> Iterator[RuleProblem]:
    if operation.method not in METHODS:
        yield "method", f"is {operation.method!r}; write one of {', '.join(METHODS)}"
    if operation.method in READING and any(
        each.place in (ParameterPlace.BODY, ParameterPlace.WHOLE) for each in operation.parameters
    ):
        yield "body", f"belongs to no {operation.method}; use query"


def _places(operation: HttpOperation, _: HttpEndpoint) -> Iterator[RuleProblem]:
    in_path = [each.field for each in operation.parameters if each.place is ParameterPlace.PATH]
    try:
        named = places_in(operation.path)
    except ValueError as error:
        yield "path", str(error)
        return
    if missing := sorted(set(named) - {each.wire for each in in_path}):
        yield "parameters", f'has no type for {missing[0]!r} of the path; write {missing[0]} = "string"'
    if idle := sorted({each.wire for each in in_path} - set(named)):
        yield "parameters", f"has {idle[0]!r}, which is not in the path; write {{{idle[0]}}} there, or use query"
    if loose := [each.wire for each in in_path if not each.is_required]:
        yield f"parameters.{loose[0]}", "stands in the path, and cannot be optional"
    whole = [each for each in operation.parameters if each.place is ParameterPlace.WHOLE]
    if len(whole) > 1 or (whole and any(each.place is ParameterPlace.BODY for each in operation.parameters)):
        yield "body", "is either one value or has fields"
    spelled = [each.field.spelled for each in operation.parameters]
    if twice := [name for name in spelled if spelled.count(name) > 1]:
        yield "parameters", f"two have the name {twice[0]!r} in scripts; rename one"


def _headers(operation: HttpOperation, endpoint: HttpEndpoint) -> Iterator[RuleProblem]:
    given = [each.field.wire for each in operation.parameters if each.place is ParameterPlace.HEADER]
    own = {*OWN_HEADERS, *CREDENTIAL_HEADERS, *endpoint.headers, "accept", "content-type"}
    key = operation.rules.key_header
    for name in given:
        if problem := header_problem(name, ""):
            yield "header_parameters", problem
        if name.lower() in own or name.lower().startswith("proxy-") or name.lower() == key.lower():
            yield f"header_parameters.{name}", "is not for scripts; leave it out"
    if key and (header_problem(key, "") or key.lower() in own):
        yield "key_header", f"{key!r} cannot have the key; write another name"


def _answers(operation: HttpOperation, _: HttpEndpoint) -> Iterator[RuleProblem]:
    rules = operation.rules
    for setting, value in (("result_path", rules.result_path), ("refused", rules.refused)):
        if value and operation.answer != "json":
            yield setting, 'needs answer = "json"'
    if operation.method == "HEAD" and operation.answer != "none":
        yield "answer", 'to HEAD there is none; write answer = "none"'


def _kind(operation: HttpOperation, _: HttpEndpoint) -> Iterator[RuleProblem]:
    rules = operation.rules
    of_mutations = {
        "happened": rules.happened,
        "did_not_happen": rules.did_not_happen,
        "key_path": rules.key_path,
        "reference_path": rules.reference_path,
        "replay": rules.replay,
        "reconcile": rules.reconcile,
        "identity": rules.identity,
        "settle_ms": rules.settle_ms,
    }
    if operation.is_read and (idle := [name for name, value in of_mutations.items() if value]):
        yield idle[0], "is for calls that change something; this one only reads"
    if not operation.is_read and rules.by_id:
        yield "by_id", "is for reads; this call changes something"
    spelled = {each.field.spelled for each in operation.parameters}
    if unknown := sorted(set(rules.identity or ()) - spelled):
        yield "identity", f"names {unknown[0]!r}, which is no parameter; there are: {', '.join(sorted(spelled))}"


def _statuses(operation: HttpOperation, _: HttpEndpoint) -> Iterator[RuleProblem]:
    happened, did_not_happen = set(operation.rules.happened), set(operation.rules.did_not_happen)
    for setting, statuses in (("happened", happened), ("did_not_happen", did_not_happen)):
        if wrong := sorted(each for each in statuses if not 200 <= each <= 599):
            yield setting, f"{wrong[0]} is no status of an answer; write 200 to 599"
    if both := sorted(happened & did_not_happen):
        yield "did_not_happen", f"has {both[0]}, and so has `happened`; keep one"


def _key(operation: HttpOperation, _: HttpEndpoint) -> Iterator[RuleProblem]:
    rules = operation.rules
    if rules.key_chars not in KEY_CHARS:
        yield "key_chars", f"is {rules.key_chars}; write {KEY_CHARS[0]} to {KEY_CHARS[-1]}"
    paths = {"key_path": rules.key_path, "reference_path": rules.reference_path}
    fields = {each.field.wire for each in operation.parameters if each.place is ParameterPlace.BODY}
    for setting, path in paths.items():
        if path and not all(path.split(".")):
            yield setting, f"{path!r} is no path; write names with a dot between them"
        if path in fields:
            yield setting, f"{path!r} is a parameter of scripts; remove it from the body"
    if rules.key_path and rules.key_path == rules.reference_path:
        yield "reference_path", "is the key_path; leave one out"
    if rules.key_lifetime:
        yield from _lifetime(rules.key_lifetime)
    if rules.replay and not rules.key_lifetime:
        yield "key_lifetime", 'is needed for replay: how long the service keeps a key, such as "24h"'
    if rules.replay and not (rules.key_header or rules.key_path):
        yield "replay", "needs a key; set key_header or key_path"
    if rules.replay and rules.reconcile is not None:
        yield "replay", "is not needed beside reconcile, which is asked instead; keep one"


def _lifetime(text: str) -> Iterator[RuleProblem]:
    try:
        if read_duration_ms(text) < LIFETIME_MS_MIN:
            yield "key_lifetime", f"is too short to rely on; at least {LIFETIME_MS_MIN // 60_000}min is needed"
    except ValueError as error:
        yield "key_lifetime", str(error)


def _reconcile(operation: HttpOperation, _: HttpEndpoint) -> Iterator[RuleProblem]:
    look = operation.rules.reconcile
    if look is None:
        return
    if not (look.path or look.poll_location):
        yield "reconcile.path", "is missing; write the path to ask, or poll_location = true"
    if not (look.found or look.applied):
        yield "reconcile.found", 'is missing; write what the effect has, such as { reference = "$key" }'
    if look.poll_location and not look.found:
        yield "reconcile.found", 'is needed to poll; write what is there when it is done, such as { status = "done" }'
    if look.failed and not look.poll_location:
        yield "reconcile.failed", "is for poll_location"
    if both := sorted(set(look.applied) & set(look.not_applied)):
        yield "reconcile.not_applied", f"has {both[0]}, and so has `applied`; keep one"
    yield from _references(operation, look)


def _references(operation: HttpOperation, look: HttpReconcile) -> Iterator[RuleProblem]:
    spelled = {each.field.spelled for each in operation.parameters}
    try:
        in_path = places_in(look.path) if look.path else []
    except ValueError as error:
        yield "reconcile.path", str(error)
        return
    values: list[tuple[str, Plain]] = [("reconcile.path", f"${name}") for name in in_path]
    values += [("reconcile.query", value) for value in look.query.values()]
    values += [("reconcile.found", value) for value in look.found.values()]
    named = [(place, value[1:]) for place, value in values if isinstance(value, str) and _is_name(value)]
    for place, name in named:
        if name not in {KEY, *spelled}:
            yield place, f"names ${name}, which is neither $key nor a parameter"
    rules = operation.rules
    if any(name == KEY for _, name in named):
        if KEY in spelled:
            yield "reconcile", "means the key of the call by $key, and there is a parameter `key`; rename that"
        if not (rules.key_header or rules.key_path or rules.reference_path):
            yield "reconcile", "looks for $key, which no request has; set reference_path, key_path or key_header"
    if look.path and not named:
        yield "reconcile.found", "would find the effect of any call; compare with $key, or with a parameter"


def _is_name(value: str) -> bool:
    return value.startswith("$") and not value.startswith("$$")


_CHECKS: Final[tuple[Callable[[HttpOperation, HttpEndpoint], Iterator[RuleProblem]], ...]] = (
    _method,
    _places,
    _headers,
    _answers,
    _kind,
    _statuses,
    _key,
    _reconcile,
)
"""In the order in which they are made: a later one relies on the earlier ones."""
