"""Public: the fault points at which a test may have something go wrong."""

from keep_actors.host.fault_points import Faults, Point, no_faults

__all__ = ["Faults", "Point", "no_faults"]
