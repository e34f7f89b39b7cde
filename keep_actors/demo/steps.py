"""What a demo has to tell, step by step: values, for a person's eye and for `--json` alike."""

import msgspec

from keep_actors.demo.story import Line


class Began(msgspec.Struct, frozen=True, tag_field="step", tag="began"):
    """The folder is there."""

    folder: str


class Started(msgspec.Struct, frozen=True, tag_field="step", tag="started"):
    """A life of the runtime."""

    life: int
    pid: int
    sandbox: str


class Seen(msgspec.Struct, frozen=True, tag_field="step", tag="seen"):
    """Something that the ledger says."""

    line: Line


class Killed(msgspec.Struct, frozen=True, tag_field="step", tag="killed"):
    """The end of the first life."""

    pid: int
    exit_code: int
    payment: str
    outside: int
    """How often the bank has it."""
    ledger: str
    """What the ledger says of it."""


class Payment(msgspec.Struct, frozen=True, tag_field="step", tag="payment"):
    """One invoice, on both sides."""

    invoice: str
    amount: int
    outside: int
    ledger: str
    how: str


class Command(msgspec.Struct, frozen=True):
    """Something to type, and what for."""

    what: str
    line: str


class Summary(msgspec.Struct, frozen=True, tag_field="step", tag="summary"):
    """How it ended. `problems` is empty if everything that is claimed is true."""

    problems: list[str]
    payments: int
    rows: int
    mails: int
    digests: int
    couriers: int
    took_ms: int
    question: str | None
    """The call that nobody knows about, by its id."""
    about: str
    commands: list[Command]


Step = Began | Started | Seen | Killed | Payment | Summary
