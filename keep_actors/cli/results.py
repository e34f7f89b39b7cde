"""The result that a person gives with a verdict: checked by who knows its type, and asked for if it is missing."""

import shlex
import sys
from collections.abc import Callable
from typing import Any

import click
import msgspec

from keep_actors.cli.changing import Runtime, Unfit
from keep_actors.cli.given import connectors_from
from keep_actors.cli.options import json_value
from keep_actors.cli.terminal import plain, remark
from keep_actors.control.protocol import Request
from keep_storage.model import Json, Mutation
from keep_storage.operations import Operation

OPTION = "--result"


class Given:
    """A result as it was typed, or not yet. `specs` and `discovered` are connectors, for when no runtime knows them."""

    def __init__(self, mutation: Mutation, typed: str | None, specs: tuple[str, ...], discovered: bool) -> None:
        self._mutation = mutation
        self._call = f"{mutation.connector}.{mutation.method}"
        self._is_missing = typed is None
        self._value: Any = json_value(typed, OPTION) if typed is not None else None
        self._connectors = specs, discovered
        self._is_unchecked = False

    def say(
        self,
        runtime: Runtime,
        request: Callable[[Any], Request[Mutation]],
        operation: Callable[[Json], Operation[Mutation]],
    ) -> Mutation:
        """Have it written. One that is missing is asked for on a terminal, as often as it does not fit."""
        while True:
            try:
                settled = runtime.ask_or_write(request(self._value), Mutation, lambda: operation(self._checked()))
            except Unfit as unfit:
                if not self._is_missing:
                    raise
                if not sys.stdin.isatty():
                    raise Unfit(f"{unfit.message} Add it: {self._option(unfit.example)}", unfit.example) from None
                self._ask(unfit)
            else:
                self._say_whether_checked(runtime, settled)
                return settled

    def _checked(self) -> Json:
        """What is written without a runtime."""
        specs, discovered = self._connectors
        self._is_unchecked = not specs and not discovered
        if self._is_unchecked:
            return msgspec.json.encode(self._value).decode()
        # Only who has no runtime, and connectors, gets here.
        from keep_actors.api.expected import checked_result
        from keep_actors.api.verdicts import ResultRefused
        from keep_actors.connectors import Catalog

        method = Catalog(connectors_from(specs, discovered)).get(self._call)
        if method is None:
            raise click.UsageError(f"None of these connectors has {self._call}.")
        try:
            return checked_result(method, self._call, self._value)
        except ResultRefused as refused:
            raise Unfit(str(refused), refused.example) from None

    def _ask(self, unfit: Unfit) -> None:
        remark(unfit.message)
        while True:
            try:
                self._value = json_value(click.prompt("Result, as JSON", err=True), OPTION)
            except click.UsageError as error:
                remark(error.message)
            else:
                return

    def _option(self, example: Json) -> str:
        return f"{OPTION} {shlex.quote(example) if example else 'JSON'}"

    def _say_whether_checked(self, runtime: Runtime, settled: Mutation) -> None:
        if self._is_unchecked:
            remark(
                f"The result {plain(settled.result or 'null', 200)} was not checked: without a runtime or --connectors "
                f"nobody knows what {self._call} returns. Until `next` has used it, it can be put right:\n"
                f"  keep amend {settled.id} {OPTION} JSON --db {runtime.db}"
            )
