"""The outcome of a call of a tool: one table of what the client sees. Pure.

The same error comes before an effect and after it, and a server may send any code. So the first question is always if
the request was handed over, which the connector observes itself. What is sent and not refused is unknown.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from keep_actors.connectors import (
    ConnectorBug,
    ConnectorError,
    InvalidCall,
    PreconditionFailed,
    Transient,
    Uncertain,
)
from keep_actors.outbound.checked import WebError
from keep_actors.services.http.outcomes import (
    Meaning,
    SentRequest,
    error_of,
    meaning_of_problem,
    meaning_of_read_problem,
    meaning_of_read_status,
    meaning_of_status,
)
from keep_actors.services.mcp.settings import ErrorMeaning
from keep_actors.text.visible import quoted

WORDS_MAX: Final = 500


class ToolProblem(StrEnum):
    """The reasons why a call has no result."""

    NOT_STARTED = "the server cannot be started"
    CLOSED = "the connection to the server ended"
    LATE = "the server did not answer in time"
    SESSION_GONE = "the server does not know the session any more"
    UNKNOWN_TOOL = "the server does not know the tool, it says"
    WRONG_ARGUMENTS = "the server refuses the arguments, or its own result"
    PROTOCOL_ERROR = "the server answered with an error"
    TOOL_ERROR = "the tool ended with an error"
    MISFIT = "the result is not of the declared type"
    TASK = "the server made a task of the call"
    NEEDS_INPUT = "the server wants to know more, and there is no person to ask"


class _Row(NamedTuple):
    before: type[ConnectorError]
    """It was not sent: it did not happen."""
    after: type[ConnectorError] | None
    """It was sent. None: unknown."""
    read: type[ConnectorError]


_ROWS: Final = {
    ToolProblem.NOT_STARTED: _Row(ConnectorBug, None, ConnectorBug),
    ToolProblem.CLOSED: _Row(Transient, None, Transient),
    ToolProblem.LATE: _Row(Transient, None, Transient),
    ToolProblem.SESSION_GONE: _Row(Transient, Transient, Transient),
    ToolProblem.UNKNOWN_TOOL: _Row(InvalidCall, None, InvalidCall),
    ToolProblem.WRONG_ARGUMENTS: _Row(InvalidCall, None, InvalidCall),
    ToolProblem.PROTOCOL_ERROR: _Row(ConnectorBug, None, ConnectorBug),
    ToolProblem.TOOL_ERROR: _Row(PreconditionFailed, None, PreconditionFailed),
    ToolProblem.MISFIT: _Row(ConnectorBug, None, ConnectorBug),
    ToolProblem.TASK: _Row(ConnectorBug, None, ConnectorBug),
    ToolProblem.NEEDS_INPUT: _Row(ConnectorBug, None, ConnectorBug),
}
assert set(_ROWS) == set(ToolProblem), "every reason has an outcome"

_CODES: Final = {-32601: ToolProblem.UNKNOWN_TOOL, -32602: ToolProblem.WRONG_ARGUMENTS}
"""By the code of JSON-RPC. Servers send the first also when a tool failed on a refusal of ours, after its effect, and
the second for a result of their own that does not fit its schema."""

_DECLARED: Final = frozenset({ToolProblem.TOOL_ERROR, ToolProblem.UNKNOWN_TOOL, ToolProblem.WRONG_ARGUMENTS})
"""The reasons whose meaning an operator may declare."""

_FOREIGN: Final = _DECLARED | {ToolProblem.PROTOCOL_ERROR}
"""The reasons that come with words of the server."""


class CallFailed(Exception):
    """A call has no result: for a reason of ours, or for one of HTTP. Its words have foreign ones quoted."""

    def __init__(
        self,
        problem: ToolProblem | None,
        words: str = "",
        *,
        web_error: WebError | None = None,
        status: int | None = None,
        task_id: str = "",
    ) -> None:
        said = quoted(words, WORDS_MAX)[0] if words and (problem in _FOREIGN or status is not None) else words
        first = problem.value if problem is not None else f"the server answered {status}" if status is not None else ""
        super().__init__(": ".join(part for part in (first, said) if part))
        self.problem = problem
        self.web_error = web_error
        self.status = status
        self.task_id = task_id


def problem_of_code(code: int) -> ToolProblem:
    """The reason behind an error that the server sent."""
    return _CODES.get(code, ToolProblem.PROTOCOL_ERROR)


def read_outcome(failed: CallFailed) -> ConnectorError:
    """The error of a read."""
    if failed.problem is not None:
        return _ROWS[failed.problem].read(str(failed))
    if failed.web_error is not None:
        return _certain(meaning_of_read_problem(failed.web_error.problem), str(failed))
    assert failed.status is not None, "a failure has a reason"
    return _certain(meaning_of_read_status(failed.status), str(failed))


def mutation_outcome(failed: CallFailed, *, is_sent: bool, error_means: ErrorMeaning) -> ConnectorError | Uncertain:
    """The error of a mutation."""
    if failed.problem is not None:
        row = _ROWS[failed.problem]
        if failed.problem in _DECLARED and error_means == "did_not_happen":
            return row.before(str(failed))
        kind = row.after if is_sent else row.before
        return Uncertain(str(failed)) if kind is None else kind(str(failed))
    if failed.web_error is not None:
        return error_of(meaning_of_problem(failed.web_error.problem, is_sent=is_sent), str(failed))
    assert failed.status is not None, "a failure has a reason"
    return error_of(meaning_of_status(failed.status, SentRequest("POST")), str(failed))


def connecting_outcome(
    error: BaseException | None, web_error: WebError | None, status: int | None, last_words: str
) -> ConnectorError:
    """The error of a session that could not begin: nothing was called."""
    if web_error is not None:
        return _certain(meaning_of_read_problem(web_error.problem), f"the server cannot be reached: {web_error}")
    if status is not None:
        return _certain(meaning_of_read_status(status), f"the server answered {status}")
    if isinstance(error, (OSError, ValueError)) and not isinstance(error, TimeoutError):
        return ConnectorBug(f"{ToolProblem.NOT_STARTED.value}: {error}")
    said = "" if error is None else f": {quoted(str(error), WORDS_MAX)[0]}"
    more = f"; it wrote {last_words}" if last_words else ""
    return Transient(f"no session with the server{said}{more}")


def _certain(meaning: Meaning, words: str) -> ConnectorError:
    found = error_of(meaning, words)
    assert isinstance(found, ConnectorError), "a read is never uncertain"
    return found
