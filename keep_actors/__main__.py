"""`python -m keep_actors`: the command `keep`, where the script of that name is not in the path."""

from keep_actors.cli.main import main

main(prog_name="keep")
