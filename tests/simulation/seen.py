"""What was seen and said in a story, beside what is in the database."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

Place = tuple[str, str, str, str]
"""Where an effect belongs: workflow, handler, method, and the event or item behind it."""


@dataclass
class Seen:
    """Kept by the oracle."""

    done: defaultdict[Place, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The keys of the effects at each place."""
    excused: Counter[Place] = field(default_factory=Counter)
    """How many more effects than one a place may have: because of what a person said or wanted."""
    lies: dict[str, str] = field(default_factory=dict)
    """What a person said falsely, by mutation."""
    doubted: set[str] = field(default_factory=set)
    """Mutations of which nobody knew what became of them, at some time."""
    told: list[tuple[str, str, str]] = field(default_factory=list)
    """Events that somebody was told are there: workflow, topic, message id."""
    again: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often somebody was told that an item is processed anew."""
    refused: dict[str, bool] = field(default_factory=dict)
    """Questions to which a person has said no, or was about to: whether that was answered."""
    times: dict[tuple[str, str], int] = field(default_factory=dict)
    """How often each handler has committed, as its own state counts."""
    last_runs: dict[tuple[str, str], str] = field(default_factory=dict)
    """The last run of each handler."""
    wanted: set[str] = field(default_factory=set)
    """Scripts that a person has deployed, brought back or accepted, or was about to."""
    unwanted: set[str] = field(default_factory=set)
    """Scripts that a person has to accept before they run."""
