"""Limits of one invocation. The defaults are measured.

One frozen value, given to the pool and sent to the zygote once. Exceeding a limit ends the invocation with the outcome
that names it.
"""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a guest. Times are milliseconds; sizes are bytes of UTF-8 unless the name says otherwise."""

    cpu_soft_ms: int = 250
    """CPU time of one invocation. The engine stops the script and reports the place."""
    cpu_hard_ms: int = 575
    """CPU time of one invocation, enforced by the kernel: it kills what the engine could not stop."""
    inspect_cpu_ms: int = 4_000
    """CPU time of one `inspect`: parsing and checking a large script takes longer than running it."""
    wall_ms: int = 30_000
    """Wall-clock time of the guest. Waiting for the host's answers does not count."""

    heap_bytes: int = 64 * 1024 * 1024
    address_space_bytes: int = 512 * 1024 * 1024
    js_stack_bytes: int = 1024 * 1024
    """About 600 nested calls. A frame takes 1.7 KB, so a quarter of this is too little for honest recursion."""

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
        if not 0 < self.cpu_soft_ms <= self.cpu_hard_ms:
            raise ValueError("cpu_soft_ms must be > 0 and <= cpu_hard_ms")
        if not 0 < self.script_lines <= SCRIPT_LINES_MAX:
            raise ValueError(f"script_lines must be > 0 and <= {SCRIPT_LINES_MAX}")
        if self.frame_bytes < 2 * self.value_bytes + 65_536:
            # JSON text is not escaped again inside a frame, but a value must never make a frame too long.
            raise ValueError("frame_bytes must be at least twice value_bytes plus 65,536")


SCRIPT_LINES_MAX = 20_000
"""The prelude begins after this line: a greater line number is never the author's."""

DEFAULT_LIMITS = Limits()

# A trusted script shares the CPU clock with all threads of the host, so this limit only ends an accidental loop.
TRUSTED_LIMITS = Limits(cpu_soft_ms=10_000, cpu_hard_ms=10_000)
