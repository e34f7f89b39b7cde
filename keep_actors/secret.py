"""Public: `Secret`, a value that is used and never shown."""

from keep_actors.outbound.secret import Secret

__all__ = ["Secret"]
