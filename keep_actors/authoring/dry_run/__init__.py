"""Dry runs: a script on the events that wait for it, without any effect.

`dry_run` evaluates `prepare` and `mutate` up to the call that `mutate` wants. It holds no connector method that changes
anything and no connection that can write, so no script can make it act.
"""

from keep_actors.authoring.dry_run.compare import Difference, compare
from keep_actors.authoring.dry_run.rehearsal import dry_run
from keep_actors.authoring.dry_run.report import (
    DryRunRefused,
    EventRef,
    Published,
    Rehearsal,
    Report,
    Simulated,
    Unfinished,
    WantedCall,
)

__all__ = [
    "Difference",
    "DryRunRefused",
    "EventRef",
    "Published",
    "Rehearsal",
    "Report",
    "Simulated",
    "Unfinished",
    "WantedCall",
    "compare",
    "dry_run",
]
