"""Errors between a sender and an actor, by what the sender may do next.

`MailboxFull` and `ActorStopped`: the message was not processed and may be sent again. `ActorDied` and `AskTimeout`: it
may have been processed; read what happened before sending it again. `Escalated` is for the owner of a supervisor; no
sender gets it.
"""


class ActorError(Exception):
    """Base class of the errors below."""


class MailboxFull(ActorError):
    """The actor is slower than its senders. The message was not accepted."""

    def __init__(self, actor: str, capacity: int) -> None:
        super().__init__(
            f"the mailbox of actor {actor!r} is full ({capacity} messages); this message was not accepted. "
            "Wait for answers before sending more, or give the actor a larger mailbox."
        )
        self.actor = actor
        self.capacity = capacity


class ActorStopped(ActorError):
    """The actor ended before it took this message. The message was not processed."""

    def __init__(self, actor: str) -> None:
        super().__init__(f"actor {actor!r} has stopped; this message was not processed")
        self.actor = actor


class ActorDied(ActorError):
    """The actor ended with this message in hand. It may have been processed in part, in full or not at all.

    The exception that ended the actor, if there was one, is the `__cause__`.
    """

    def __init__(self, actor: str) -> None:
        super().__init__(
            f"actor {actor!r} ended without answering this message, which may have been processed. "
            "Read what it did before sending it again."
        )
        self.actor = actor


class AskTimeout(ActorError, TimeoutError):
    """The answer did not come in time. The message is still with the actor and may still be processed."""

    def __init__(self, actor: str, timeout_ms: int) -> None:
        super().__init__(f"actor {actor!r} did not answer within {timeout_ms} ms; the message may still be processed")
        self.actor = actor
        self.timeout_ms = timeout_ms


class Escalated(ActorError):
    """A child crashed too often and had no `given_up`. All children of the supervisor have ended.

    The last crash, or the error of a function that handles crashes, is the `__cause__`.
    """

    def __init__(self, supervisor: str, child: str) -> None:
        super().__init__(f"supervisor {supervisor!r} has ended, because it could not go on with its child {child!r}")
        self.supervisor = supervisor
        self.child = child
