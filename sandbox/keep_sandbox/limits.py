"""How much one invocation may use, and how long a worker is kept. All of it is policy; the defaults are measured.

One frozen value, given to the pool and sent to the zygote once. A limit that is passed ends the invocation with
the outcome that names it.
"""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a guest may use. Times are milliseconds, sizes are bytes of UTF-8 unless the name says otherwise."""

    cpu_soft_ms: int = 250
    """CPU of one invocation. The engine stops the script and says where it was."""
    cpu_hard_ms: int = 575
    """CPU of one invocation, told by the kernel: what the engine could not stop is killed here."""
    inspect_cpu_ms: int = 4_000
    """CPU of one `inspect`: parsing and checking a large script takes longer than running it."""
    wall_ms: int = 30_000
    """Time that the guest has the word. Waiting for the host's answers does not count."""

    heap_bytes: int = 64 * 1024 * 1024
    address_space_bytes: int = 512 * 1024 * 1024
    js_stack_bytes: int = 1024 * 1024
    """About 600 calls deep. A frame takes 1.7 KB, so a quarter of this is too little for honest recursion."""

    value_bytes: int = 1024 * 1024
    value_depth: int = 64
    host_calls: int = 100
    log_lines: int = 200
    log_line_chars: int = 2_000
    error_chars: int = 4_096

    script_bytes: int = 256 * 1024
    script_lines: int = 20_000
    """No more than this is possible: the lines behind it are those of the prelude."""

    frame_bytes: int = 8 * 1024 * 1024
    invocation_bytes: int = 32 * 1024 * 1024
    """Everything that a worker may send in one invocation."""

    def __post_init__(self) -> None:
        if not 0 < self.cpu_soft_ms <= self.cpu_hard_ms:
            raise ValueError("the soft CPU limit is above zero and not above the hard one")
        if not 0 < self.script_lines <= SCRIPT_LINES_MAX:
            raise ValueError(f"a script has at most {SCRIPT_LINES_MAX} lines")
        if self.frame_bytes < 2 * self.value_bytes + 65_536:
            # JSON text inside a frame is not escaped again, but a value must never be what makes a frame too long.
            raise ValueError("a frame holds the largest value twice over")


SCRIPT_LINES_MAX = 20_000
"""Where the prelude begins: a line number above this one is never the author's."""

DEFAULT_LIMITS = Limits()

# A trusted script shares its clock with every thread of the host, so its CPU limit is only there to end a slip.
TRUSTED_LIMITS = Limits(cpu_soft_ms=10_000, cpu_hard_ms=10_000)
