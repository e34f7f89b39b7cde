"""Three workflows on local servers: mail to database, webhook to sheet, Model Context Protocol to mail.

    python -m examples.at_work [FOLDER]

Everything runs on this machine, and is kept in the folder, `at-work` if there is no other. The mail server breaks a
connection after it has taken a mail: the connector finds the mail in the sent folder, and it is not sent again. Kill
it at any moment and start it again: it goes on.
"""

import sys
from importlib.util import find_spec

NEEDED = ["aiosmtpd", "httpx2", "imapclient", "mcp", "openpyxl", "pymap", "starlette", "uvicorn"]


def main() -> None:
    """Check that everything is installed, and run."""
    missing = [each for each in NEEDED if find_spec(each) is None]
    if missing:
        sys.exit(f"There is no {', '.join(missing)} here. Install what examples need: pip install '.[examples]'")
    from examples.at_work.story import run

    run(sys.argv[1:])


if __name__ == "__main__":
    main()
