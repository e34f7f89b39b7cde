"""Limits of one invocation. The defaults are measured.

One frozen value, given to the pool and sent to the zygote once. Exceeding a limit ends the invocation with the outcome
that names it.
"""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a guest. Times are milliseconds; sizes are bytes of UTF-8 unless the name says otherwise."""

    fuel: int = 2_000_000_000
    """Instructions of one invocation: about a quarter of a second. The engine stops the script and reports the place.
    Loading the script has as much again. The same script with the same input uses the same fuel on every machine."""
    cpu_hard_ms: int = 2_000
    """CPU time of one turn of a script in a worker, enforced by the kernel: for what fuel does not measure."""
    inspect_cpu_ms: int = 4_000
    """CPU time of one `inspect`: parsing and checking a large script takes longer than running it."""
    wall_ms: int = 30_000
    """Wall-clock time of the guest while it computes. Waiting for the host, or for others in its worker, is free."""

    heap_bytes: int = 64 * 1024 * 1024
    data_bytes: int = 512 * 1024 * 1024
    """Memory that a worker process may write to, beside the memories of its guests."""
    js_stack_bytes: int = 700 * 1024
    """At most `STACK_BYTES_MAX`."""

    value_bytes: int = 1024 * 1024
    value_depth: int = 64
    host_calls: int = 100
    log_lines: int = 200
    log_line_chars: int = 2_000
    error_chars: int = 4_096

    script_bytes: int = 256 * 1024
    script_lines: int = 20_000
    """At most `SCRIPT_LINES_MAX`: the lines after it are those of the prelude."""

    frame_bytes: int = 8 * 1024 * 1024
    invocation_bytes: int = 32 * 1024 * 1024
    """The total size of the frames of a worker in one invocation."""

    def __post_init__(self) -> None:
        if not 0 < self.fuel < 2**62:
            raise ValueError("fuel must be > 0 and < 2**62")
        if not 0 < self.js_stack_bytes <= STACK_BYTES_MAX:
            raise ValueError(f"js_stack_bytes must be > 0 and <= {STACK_BYTES_MAX}")
        if not 0 < self.heap_bytes <= HEAP_BYTES_MAX:
            raise ValueError(f"heap_bytes must be > 0 and <= {HEAP_BYTES_MAX}")
        if not 0 < self.script_lines <= SCRIPT_LINES_MAX:
            raise ValueError(f"script_lines must be > 0 and <= {SCRIPT_LINES_MAX}")
        if self.frame_bytes < 2 * self.value_bytes + 65_536:
            # JSON text is not escaped again inside a frame, but a value must never make a frame too long.
            raise ValueError("frame_bytes must be at least twice value_bytes plus 65,536")


SCRIPT_LINES_MAX = 20_000
"""The prelude begins after this line: a greater line number is never the author's."""

STACK_BYTES_MAX = 700 * 1024
"""The guest's memory has a stack of 1 MiB; the rest is for the engine itself."""

HEAP_BYTES_MAX = 72 * 1024 * 1024
"""The guest's memory has 80 MiB, with the stack and the engine's own data."""

GUEST_BYTES = 80 * 1024 * 1024
"""The memory of a guest, most of which is never touched."""

FUEL_PER_MS = 8_000_000
"""Fuel that a machine of today uses in a millisecond; twice as long where a script allocates much."""

DEFAULT_LIMITS = Limits()

TRUSTED_LIMITS = DEFAULT_LIMITS
"""An earlier name: the engine enforces the same limits in every mode."""
