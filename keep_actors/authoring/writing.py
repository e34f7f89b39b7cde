"""The prompt for a language model that writes a script: the rules, an example, and the connectors. Pure.

The text is `writing.md`; the part that a repair needs too is in `contract.py`. Numbers come from the code that enforces
them.
"""

from importlib.resources import files
from typing import Final

from keep_actors.authoring.catalog_types import CatalogTypes
from keep_actors.authoring.contract import contract
from keep_actors.connectors import Catalog, Method
from keep_actors.policy import Policy
from keep_actors.sandbox_pool.limits import RUN_LIMITS
from keep_actors.text.visible import cut, left_out
from keep_sandbox.limits import FUEL_PER_MS
from keep_storage.limits import MESSAGE_ID_CHARS_MAX, PEEK_DEFAULT, PEEK_MAX, TITLE_CHARS_MAX

_DESCRIPTION_CHARS_MAX: Final = 3_000


def writing_prompt(catalog: Catalog, policy: Policy | None = None, task: str = "") -> str:
    """The whole prompt, for these connectors."""
    policy, limits = policy or Policy(), RUN_LIMITS
    prompt = _filled(
        _text("writing.md"),
        contract=contract(policy).rstrip(),
        every=f"{policy.producer_interval_ms // 60_000} minutes",
        peek=PEEK_DEFAULT,
        peek_max=f"{PEEK_MAX:,}",
        wake=f"{policy.wake_after_min_ms // 1000} s to {policy.wake_after_max_ms // 3_600_000} h",
        cpu=limits.fuel // FUEL_PER_MS,
        wall=limits.wall_ms // 1000,
        heap=limits.heap_bytes >> 20,
        requests=f"{limits.host_calls:,}",
        value=limits.value_bytes >> 20,
        state=policy.state_bytes_max >> 10,
        publishes=f"{policy.publishes_max:,}",
        title=TITLE_CHARS_MAX,
        message_id=MESSAGE_ID_CHARS_MAX,
        example=example(),
        connectors=_connectors(catalog),
    )
    return f"{prompt}\n# The task\n\n{task.strip()}\n" if task.strip() else prompt


def example() -> str:
    """The example script of the prompt. The tests deploy and run it."""
    return _text("example.js")


def _text(name: str) -> str:
    return files("keep_actors.authoring").joinpath(name).read_text("utf-8")


def _filled(text: str, **values: object) -> str:
    """Fill in `<<name>>`. Not `str.format`: the text is full of JavaScript's braces."""
    for name, value in values.items():
        before, mark, after = text.partition(f"<<{name}>>")
        assert mark, f"the text has no <<{name}>>"
        text = f"{before}{value}{after}"
    return text


def _connectors(catalog: Catalog) -> str:
    types = CatalogTypes(catalog)
    structs = [f"type {name} = {said}" for name, said, _ in types.structs()]
    methods = [_method(method, types) for method in catalog.methods.values()]
    return "\n".join([*structs, *([""] if structs else []), *methods]) or "None: a script can only publish."


def _method(method: Method, types: CatalogTypes) -> str:
    kind = "read by id" if method.by_id else str(method.kind)
    params = types.params(method)
    given = "" if params == "{}" else params if types.is_needed(method) else f"{params}?"
    # A service may have written it: nothing in it is hidden, and it cannot go on and on.
    said, left = cut(" ".join(method.description.split()), _DESCRIPTION_CHARS_MAX)
    said = f"{said}{left_out(left)}" if left else said
    return f"- `ctx.{method.full_name}({given})` → `{types.result(method)}` ({kind}). {said}".rstrip()
