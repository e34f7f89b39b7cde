"""`python -m keep_actors`: the command `keep`, where the script of that name is not in the path.

Python puts the folder that one is in before everything else then: here it is taken away before anything is imported
that could lie in it. This package has been found by then, and if it was found there, the folder is only put last.
"""

import os
import sys

if not sys.flags.safe_path:
    _here = os.path.realpath(sys.path.pop(0) or os.curdir)
    if os.path.realpath(os.path.dirname(os.path.dirname(__file__))) == _here:  # noqa: PTH120  # pathlib is not loaded yet
        sys.path.append(_here)

from keep_actors.cli.main import main

main(prog_name="keep")
