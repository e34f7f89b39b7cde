"""A runtime in a box, for tests: virtual time, fakes that obey a plan, crashes at named points, what really happened.

Neither pytest nor trio is needed to import this; `keep_actors.testing.fixtures` is for pytest. `docs/testing.md` has
examples. What is named here is imported when it is first used, so that a part of it does not load a runtime.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keep_actors.host.fault_points import Point
    from keep_actors.testing.box import Box
    from keep_actors.testing.fake import Fake
    from keep_actors.testing.ledger import Journal, Ledger
    from keep_actors.testing.outside import Asked, Effect, Outside
    from keep_actors.testing.plans import (
        Attempt,
        Hang,
        Step,
        auth,
        cannot_tell,
        fail,
        late_commit,
        lose_the_answer,
        lose_the_request,
        notes,
        ok,
        raises,
        says,
        transient,
    )
    from keep_actors.testing.seeded import LoopTime, run_seeded

__all__ = [
    "Asked",
    "Attempt",
    "Box",
    "Effect",
    "Fake",
    "Hang",
    "Journal",
    "Ledger",
    "LoopTime",
    "Outside",
    "Point",
    "Step",
    "auth",
    "cannot_tell",
    "fail",
    "late_commit",
    "lose_the_answer",
    "lose_the_request",
    "notes",
    "ok",
    "raises",
    "run_seeded",
    "says",
    "transient",
]

_HOME = {
    "Asked": "keep_actors.testing.outside",
    "Attempt": "keep_actors.testing.plans",
    "Box": "keep_actors.testing.box",
    "Effect": "keep_actors.testing.outside",
    "Fake": "keep_actors.testing.fake",
    "Hang": "keep_actors.testing.plans",
    "Journal": "keep_actors.testing.ledger",
    "Ledger": "keep_actors.testing.ledger",
    "LoopTime": "keep_actors.testing.seeded",
    "Outside": "keep_actors.testing.outside",
    "Point": "keep_actors.host.fault_points",
    "Step": "keep_actors.testing.plans",
    "auth": "keep_actors.testing.plans",
    "cannot_tell": "keep_actors.testing.plans",
    "fail": "keep_actors.testing.plans",
    "late_commit": "keep_actors.testing.plans",
    "lose_the_answer": "keep_actors.testing.plans",
    "lose_the_request": "keep_actors.testing.plans",
    "notes": "keep_actors.testing.plans",
    "ok": "keep_actors.testing.plans",
    "raises": "keep_actors.testing.plans",
    "run_seeded": "keep_actors.testing.seeded",
    "says": "keep_actors.testing.plans",
    "transient": "keep_actors.testing.plans",
}
assert set(_HOME) == set(__all__), "every public name has its home"


if not TYPE_CHECKING:  # a type checker would believe that every name is there

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value
