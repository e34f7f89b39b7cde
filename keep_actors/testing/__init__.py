"""A runtime in a box, for tests: virtual time, fakes that obey a plan, crashes at named points, what really happened.

Neither pytest nor trio is needed to import this; `keep_actors.testing.fixtures` is for pytest. `docs/testing.md` has
examples.
"""

from keep_actors.faults import Point
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
    "ok",
    "raises",
    "run_seeded",
    "says",
    "transient",
]
