"""The engine's short way to JSON text, in C: natively, under AddressSanitizer and UBSan, against a judge in JS."""

import atexit
from functools import cache

from tests.engine import compilers
from tests.engine.plain_program import NoValue, PlainProgram, built
from tests.fuzz.plain_expressions import Question, questions
from tests.fuzz.target import Target


def check(asked: Question) -> None:
    """The program ends itself if something is wrong. What is plain must also fit, in bytes of UTF-8."""
    try:
        text = _program().text_of(asked)
    except NoValue:
        return
    except Exception:
        _program.cache_clear()  # it has ended; the next question is for another one
        raise
    assert text is None or len(text.encode()) <= asked.room


@cache
def _program() -> PlainProgram:
    program = PlainProgram(built())
    program.__enter__()
    atexit.register(program.__exit__, None, None, None)
    return program


def _read(data: bytes) -> Question:
    head, _, source = data.decode("utf-8", "surrogatepass").partition("\n")
    room, depth, failures = map(int, head.removeprefix("// ").split())
    return Question(source, room, depth, bool(failures))


def _write(asked: Question) -> bytes:
    head = f"// {asked.room} {asked.depth} {asked.failures:d}"
    return f"{head}\n{asked.source}".encode("utf-8", "surrogatepass")


def _prepare() -> str:
    reason = compilers.missing()
    if not reason:
        built()
    return reason


TARGET = Target(
    "plain_text",
    "JSON text of values, in C, under sanitizers",
    questions,
    check,
    read=_read,
    write=_write,
    suffix=".js",
    prepare=_prepare,
)
