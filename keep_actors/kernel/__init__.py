"""A small actor kernel on AnyIO, usable by itself: typed messages, bounded mailboxes, answered asks, supervision.

Derive from `Actor` and `Question`, start the actor with a `Supervisor` or in a `Directory`, or `actor.run` in a
task group, and talk to it through a reference. It needs nothing from the rest of the project, and refuses to
grow features that one actor alone wants. `docs/kernel.md` has the promises.
"""

from keep_actors.backoff import Backoff
from keep_actors.kernel.actor import Actor, ActorRef
from keep_actors.kernel.clock import Clock
from keep_actors.kernel.directory import Directory
from keep_actors.kernel.errors import ActorDied, ActorError, ActorStopped, AskTimeout, Escalated, MailboxFull
from keep_actors.kernel.mailbox import Mailbox
from keep_actors.kernel.question import Question
from keep_actors.kernel.supervisor import RestartPolicy, Supervisor
from keep_actors.kernel.thread import Thread, WorkerThread
from keep_actors.kernel.time import Time, VirtualTime, WallTime

__all__ = [
    "Actor",
    "ActorDied",
    "ActorError",
    "ActorRef",
    "ActorStopped",
    "AskTimeout",
    "Backoff",
    "Clock",
    "Directory",
    "Escalated",
    "Mailbox",
    "MailboxFull",
    "Question",
    "RestartPolicy",
    "Supervisor",
    "Thread",
    "Time",
    "VirtualTime",
    "WallTime",
    "WorkerThread",
]
