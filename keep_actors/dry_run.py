"""Public: evaluate a script on the events that wait for it, without changing anything."""

from keep_actors.authoring.dry_run import (
    Difference,
    DryRunRefused,
    EventRef,
    Published,
    Rehearsal,
    Report,
    Simulated,
    Unfinished,
    WantedCall,
    compare,
    dry_run,
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
