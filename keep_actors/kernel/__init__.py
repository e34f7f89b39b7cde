"""A small actor kernel on AnyIO, usable by itself: typed messages, bounded mailboxes, answered asks.

Derive from `Actor` and `Question`, start `actor.run` in a task group, and talk to it through `actor.ref`. It
needs nothing from the rest of the project, and refuses to grow features that one actor alone wants.
"""

from keep_actors.kernel.actor import Actor, ActorRef
from keep_actors.kernel.errors import ActorDied, ActorError, ActorStopped, AskTimeout, MailboxFull
from keep_actors.kernel.mailbox import Mailbox
from keep_actors.kernel.question import Question
from keep_actors.kernel.thread import Thread, WorkerThread

__all__ = [
    "Actor",
    "ActorDied",
    "ActorError",
    "ActorRef",
    "ActorStopped",
    "AskTimeout",
    "Mailbox",
    "MailboxFull",
    "Question",
    "Thread",
    "WorkerThread",
]
