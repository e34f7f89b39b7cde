"""An actor owns some state and processes its messages one at a time; others hold a reference to it.

An ask is always answered: by the actor, or by the kernel when the actor ends. The message in hand is then answered
with `ActorDied`, messages not yet taken with `ActorStopped`; the error that ended the actor leaves `run`. Under a
supervisor the next incarnation takes over the mailbox, so messages not yet taken are processed instead.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import anyio

from keep_actors.kernel.errors import ActorDied, ActorStopped, AskTimeout
from keep_actors.kernel.mailbox import Mailbox
from keep_actors.kernel.question import Question

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
T = TypeVar("T")


class Actor(ABC, Generic[M]):
    """Base class: state in `__init__`, behaviour in `receive`. A task group starts `run`."""

    pace: Callable[[], Awaitable[None]] | None = None
    """Awaited before each message is taken. Tests set it to hold the actor back."""

    def __init__(self, name: str, *, mailbox_capacity: int = 1000) -> None:
        self.name = name
        self.mailbox: Mailbox[M] = Mailbox(name, mailbox_capacity)
        self._waiting: dict[int, Question[Any]] = {}
        self._started = False
        self._supervised = False

    @property
    def ref(self) -> "ActorRef[M]":
        """A reference for others to talk to this actor. Messages sent before `run` starts wait for it."""
        return ActorRef(self)

    @abstractmethod
    async def receive(self, message: M) -> None:
        """Process one message. An exception ends the actor."""

    async def run(self) -> None:
        """Process messages until the actor is stopped, is cancelled or raises.

        Runs once: to restart is to make a new actor.
        """
        assert not self._started, "an actor runs once"
        self._started = True
        try:
            while await self.mailbox.wait():
                if self.pace is not None:
                    await self.pace()
                await self.receive(self.mailbox.take())
        except BaseException as error:
            if not self._supervised:
                # A cancellation is meant for the task that got it; only a failure is passed on as a cause.
                self._end(error if isinstance(error, Exception) else None)
            raise
        if not self._supervised:
            self._end(None)

    def stop(self) -> None:
        """Accept nothing more; `run` returns once the mailbox has been processed."""
        self.mailbox.close()

    def _supervise(self, predecessor: "Actor[M] | None") -> None:
        """Let the supervisor answer waiting askers at the end, and take over from a predecessor."""
        self._supervised = True
        if predecessor is not None:
            # A reference leads to the mailbox through the actor it was made from, so those to either are valid.
            told_in_init = self.mailbox.drain()
            self.mailbox = predecessor.mailbox
            self.mailbox.put_first(told_in_init)
            self._waiting = predecessor._waiting

    def _end(self, cause: Exception | None) -> None:
        """Accept nothing more and answer all waiting askers."""
        self._fail_taken(cause)
        self.mailbox.close()
        for message in self.mailbox.drain():
            if isinstance(message, Question):
                _fail(message, ActorStopped(self.name), cause)

    def _fail_taken(self, cause: Exception | None) -> None:
        """Fail the questions that were taken and not answered: in hand, or kept for a later turn."""
        not_taken = {id(message) for message in self.mailbox}
        for key, question in list(self._waiting.items()):  # one that was passed on leaves when it is answered
            if key not in not_taken and not question.is_answered:
                _fail(question, ActorDied(self.name), cause)


class ActorRef(Generic[M_contra]):
    """The only way to reach an actor from outside. Use it from the event loop's thread."""

    __slots__ = ("_actor",)

    def __init__(self, actor: Actor[M_contra]) -> None:
        self._actor = actor

    @property
    def name(self) -> str:
        """The name of the actor."""
        return self._actor.name

    def tell(self, message: M_contra) -> None:
        """Send a message and do not wait. Raises `MailboxFull` or `ActorStopped` when it is not accepted."""
        assert not (isinstance(message, Question) and message.is_asked), (
            "this question was asked already, and is answered by the actor that was asked; ask a new one"
        )
        self._actor.mailbox.put(message)

    def pass_on(self, question: M_contra) -> None:
        """Hand on a question that was asked elsewhere. From here on this actor owes its answer.

        Raises `MailboxFull` or `ActorStopped` when it is not accepted.
        """
        assert isinstance(question, Question), "only a question is owed an answer"
        assert not question.is_answered, "a question is answered once"
        self._actor.mailbox.put(question)
        question._pass_to(self._actor._waiting)

    async def ask(self, question: Question[T], *, timeout_ms: int | None = None) -> T:
        """Send a question and wait for its answer.

        Raises the error that the actor failed it with, `ActorDied`, `ActorStopped`, `MailboxFull` or `AskTimeout`.
        Giving up, by timeout or cancellation, does not withdraw the question: it may still be processed.
        """
        assert not question.is_asked, "a question is asked once"
        actor = self._actor
        actor.mailbox.put(question)  # type: ignore[arg-type]  # "both a M and a Question[T]" cannot be written
        # By identity: a question may be a dataclass, which has no hash.
        waiting, key = actor._waiting, id(question)
        waiting[key] = question
        try:
            if timeout_ms is None:
                await question.wait()
            else:
                with anyio.move_on_after(timeout_ms / 1000):
                    await question.wait()
                if not question.is_answered:
                    raise AskTimeout(actor.name, timeout_ms)
            return question.result()
        finally:
            del waiting[key]


def _fail(question: Question[Any], error: Exception, cause: Exception | None) -> None:
    error.__cause__ = cause
    question.fail(error)
