"""An IMAP server with one mailbox in memory, which ends when its standard input does: it never outlives its starter.

python imap_server.py PORT USER PASSWORD
"""

import os
import sys
import threading

from pymap.main import main


def _end_with_the_starter() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    port, user, password = sys.argv[1:]
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    sys.argv[1:] = ["--host", "127.0.0.1", "--port", port, "--no-tls"]
    sys.argv += ["--no-service", "admin", "--no-service", "managesieve"]
    sys.argv += ["dict", "--demo-user", user, "--demo-password", password]
    main()
