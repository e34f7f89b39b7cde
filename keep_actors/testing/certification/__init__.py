"""Public: certification of a connector against a real service, with faults injected in the network between them."""

from keep_actors.testing.certification.subject import Address, Certification, RunningService

__all__ = ["Address", "Certification", "RunningService"]
