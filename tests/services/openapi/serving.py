"""Real web services for tests, each in a thread of its own with its own event loop, on a free port of this machine."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def served(app: Callable[..., Any]) -> Iterator[int]:
    """Serve an application; the value is its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        config = uvicorn.Config(
            app, log_level="critical", lifespan="off", ws="none", loop="asyncio", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield port  # it listens already: a connection waits until the loop runs
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive(), "the server has ended"
