"""What is told about many stories."""

import msgspec

from tests.simulation.story import Told
from tests.simulation.trace import Figures

_FIGURES = (
    ("seeds", "seeds"),
    ("transitions", "transitions executed"),
    ("commits", "transactions"),
    ("invariants", "invariants checked"),
    ("runs", "runs"),
    ("effects", "effects outside"),
    ("uncertain", "uncertain outcomes"),
    ("processes", "processes started"),
    ("process_crashes", "processes killed"),
    ("actor_crashes", "actors crashed"),
    ("worker_deaths", "workers killed"),
    ("storage_failures", "storage failures"),
    ("clock_jumps", "clock jumps"),
    ("actions", "actions of people"),
    ("lies", "lies of people"),
    ("by_shell", "actions by the socket"),
    ("notices", "notices sent"),
)


def figures(total: Figures, violations: int, seconds: float) -> str:
    """The figures, one to a line."""
    lines = [f"{words:<24}{getattr(total, name):>14,}" for name, words in _FIGURES]
    lines.append(f"{'violations':<24}{violations:>14,}")
    lines.append(f"{'seconds':<24}{seconds:>14,.0f}")
    lines.append("uncertain outcomes ended as")
    lines += [f"  {reason:<38}{count:>10,}" for reason, count in sorted(total.settled_by.items())]
    missing = total.missing_edges
    lines.append(f"edges of the tables never taken: {len(missing) or 'none'}")
    lines += [f"  {kind:<10}{before} -> {after}" for kind, before, after in missing]
    return "\n".join(lines)


def story(told: Told, first: Told | None = None) -> str:
    """A failing story, with all that is needed to see it again."""
    head = f"seed {told.seed}: {told.violation}"
    if first is not None:
        head += f"\nshrunk from {len(first.trace)} lines to {len(told.trace)}"
    climate = msgspec.json.encode(told.climate).decode()
    again = f"python -m tests.simulation --show {told.seed} --climate '{climate}'"
    return "\n".join([head, *told.trace, f"again: {again}"])
