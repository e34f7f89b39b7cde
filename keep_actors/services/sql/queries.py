"""Queries as the settings declare them. Their SQL is the operator's; a script only gives values, which are bound."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from keep_actors.connectors.names import camel_case
from keep_actors.services.service import SettingsError
from keep_actors.services.sql.database import Dialect
from keep_actors.services.sql.settings import QuerySettings
from keep_actors.services.sql.tables import Column, Rows, columns_of, refuse_twins, spelled_section, typed

_TOKEN: Final = re.compile(
    r"""
      (?P<opaque>
          (?<![\w$])[eE]'(?:[^'\\]|\\.|'')*'     # an escape string
        | '(?:[^']|'')*'
        | "(?:[^"]|"")*"
        | --[^\n]*
        | /\*.*?\*/
        | (?<![\w$])\$(?P<tag>\w*)\$.*?\$(?P=tag)\$
        | ::
      )
    | (?<![\w:]):(?P<name>[A-Za-z_]\w*)
    | (?P<refused>;|\$\d+)
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Query:
    """One query that scripts may ask."""

    title: str
    """The name of its method."""
    parts: Sequence[str]
    """Its SQL, between the places of parameters."""
    places: Sequence[Column]
    """The parameter at each place."""
    parameters: Sequence[Column]
    rows: Rows
    answer: type[msgspec.Struct]
    rows_max: int
    description: str

    def sql(self, dialect: Dialect) -> str:
        """Its SQL for a database."""
        numbers = {each: number for number, each in enumerate(self.parameters, 1)}
        spelled = [dialect.place(numbers[each], each.type.cast) for each in self.places]
        return "".join(text + place for text, place in zip(self.parts, [*spelled, ""], strict=True))


def query_of(section: str, settings: QuerySettings) -> Query:
    """The query of a section. Raises `SettingsError`."""
    where = f"queries.{section}"
    parameters = [_parameter(where, name, type_text) for name, type_text in settings.parameters.items()]
    refuse_twins(f"{where}.parameters", parameters)
    by_name = {each.name: each for each in parameters}
    parts, names = _taken_apart(where, settings.sql.strip())
    if unknown := set(names) - set(by_name):
        name = min(unknown)
        raise SettingsError(f"{where}.sql", f':{name} is not in its parameters; write parameters.{name} = "text"')
    if unused := set(by_name) - set(names):
        raise SettingsError(f"{where}.parameters", f"{min(unused)} is not in its sql; write :{min(unused)} there")
    title = spelled_section(where, section)
    rows = Rows.of(f"{title}Row", columns_of(f"{where}.columns", settings.columns))
    answer = msgspec.defstruct(f"{title}Rows", [("rows", list[rows.type]), ("more", bool)], frozen=True)  # type: ignore[name-defined]
    places = [by_name[each] for each in names]
    own = title[0].lower() + title[1:]
    return Query(own, parts, places, parameters, rows, answer, settings.rows_max, settings.description)


def _parameter(where: str, name: str, type_text: str) -> Column:
    if not _NAME.fullmatch(name):
        raise SettingsError(f"{where}.parameters", f"{name!r} is not a name; write letters, digits and _")
    return typed(f"{where}.parameters.{name}", name, camel_case(name), type_text)


def _taken_apart(where: str, sql: str) -> tuple[list[str], list[str]]:
    """The text between the parameters, and their names."""
    parts, names, begin = [], [], 0
    for token in _TOKEN.finditer(sql):
        if token["refused"]:
            remedy = "one statement, without `;`" if token["refused"] == ";" else ":name for a parameter"
            raise SettingsError(f"{where}.sql", f"has {token['refused']} in it; write {remedy}")
        if token["name"]:
            parts.append(sql[begin : token.start()])
            names.append(token["name"])
            begin = token.end()
    parts.append(sql[begin:])
    return parts, names
