"""A message that expects an answer, and the place where the answer is put.

It is asked once and answered once, by `answer` or by `fail`. The type of the answer is part of the type of
the question, so a type checker sees both ends.
"""

from typing import Any, Generic, TypeVar

from keep_actors.kernel.waiter import Waiter

T = TypeVar("T")


class Question(Generic[T]):
    """Base class: `class Add(Question[int])`, with the fields it needs.

    An actor may keep a question and answer it in a later turn. When the asker has given up, an answer is
    dropped.
    """

    # Class-level defaults and no `__init__`, so that a subclass can be a dataclass or write its own.
    _answer: T
    _error: Exception | None = None
    _answered: bool = False
    _asker: Waiter | None = None
    _passed_to: "dict[int, Question[Any]] | None" = None

    @property
    def is_answered(self) -> bool:
        """True if there is an answer or an error."""
        return self._answered

    @property
    def is_asked(self) -> bool:
        """True if an asker waits, or has waited, for the answer."""
        return self._asker is not None

    def answer(self, value: T) -> None:
        """Give the asker its answer."""
        assert not self._answered, "a question is answered once"
        self._answer = value
        self._settle()

    def fail(self, error: Exception) -> None:
        """Raise `error` in the asker. Give each question its own exception: raising one changes it."""
        assert not self._answered, "a question is answered once"
        self._error = error
        self._settle()

    async def wait(self) -> None:
        """Return once there is a result."""
        assert self._asker is None, "a question is asked once"
        self._asker = Waiter()
        if not self._answered:
            await self._asker.wait()

    def result(self) -> T:
        """Return the answer, or raise the error. There must be one."""
        assert self._answered, "there is no result before the answer"
        if self._error is None:
            return self._answer
        # Its traceback will hold the frames that hold this question: without this, each error is a cycle.
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error

    def _pass_to(self, waiting: "dict[int, Question[Any]]") -> None:
        """Let another actor owe the answer: it is in `waiting` until then."""
        waiting[id(self)] = self
        self._passed_to = waiting

    def _settle(self) -> None:
        self._answered = True
        if self._passed_to is not None:
            del self._passed_to[id(self)]
            self._passed_to = None
        if self._asker is not None:
            self._asker.wake()
