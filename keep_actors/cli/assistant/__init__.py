"""The server of `keep mcp`: an assistant looks, checks, rehearses and proposes. A person decides.

`tools.py` is the closed table of what an assistant can do. `desk.py` has the only ways from a tool to a database: a
read-only connection, and `PROPOSING`, the closed set of commands. Words of scripts, events and services leave as
`Quoted`.
"""
