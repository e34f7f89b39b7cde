"""An endpoint that speaks as OpenAI's does, and misbehaves on demand: the word in the question says how."""

import threading
from collections.abc import Callable
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

API_KEY = "chat-key-0123456789"
Answer = Callable[[str], Response]


def said(content: str | None, finish: str = "stop", **more: Any) -> Response:
    """A completion."""
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    return JSONResponse(
        {
            "id": "c-1",
            "model": "little-1",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 1_000, "completion_tokens": 200},
            **more,
        }
    )


def problem(status: int, words: str, **headers: str) -> Response:
    """An error as OpenAI has them."""
    return JSONResponse(
        {"error": {"message": words}}, status, {name.replace("_", "-"): headers[name] for name in headers}
    )


ANSWERS: dict[str, Callable[[], Response]] = {
    "limited": lambda: problem(429, "slow down", retry_after="7"),
    "broken": lambda: problem(500, "out of order"),
    "unknown": lambda: problem(404, "no such model"),
    "too-long": lambda: problem(400, "context length exceeded"),
    "garbage": lambda: PlainTextResponse("<html>"),
    "list": lambda: JSONResponse([]),
    "no-choice": lambda: said("x", choices=[]),
    "silent": lambda: said(None),
    "refusing": lambda: said(None, message={"refusal": "I will not"}),
    "filtered": lambda: said("", "content_filter"),
    "cut": lambda: said('{"city": "Ber', "length"),
    "chatty": lambda: said("Sure! Here is the JSON"),
    "misfit": lambda: said('{"city": 7}'),
    "fit": lambda: said('{"city": "Bern"}'),
    "huge": lambda: said("x" * 300_000),
    "echo": lambda: said(f"your key is {API_KEY}"),
    "absurd": lambda: said("hello", usage={"prompt_tokens": -5, "completion_tokens": "many"}),
    "moved": lambda: Response(status_code=307, headers={"location": "http://127.0.0.1:1/"}),
}


class Model:
    """The endpoint. `asked` are the bodies of all requests, `otherwise` what it says if nothing is wrong."""

    def __init__(self, otherwise: str = "") -> None:
        self.otherwise = otherwise
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.held = threading.Event()
        """While it is not set, a question `hold` waits."""
        self.arrived = threading.Event()
        """Set when such a question has come."""

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body)
        self.keys.add(request.headers.get("authorization", ""))
        if self.keys != {f"Bearer {API_KEY}"}:
            return problem(401, f"wrong key: {self.keys}")
        word = body["messages"][-1]["content"]
        if word == "hold":
            self.arrived.set()
            await anyio.to_thread.run_sync(self.held.wait, 10)
        made = ANSWERS.get(word)
        return made() if made is not None else said(self.otherwise or f"answer {len(self.asked)} to {word}")
