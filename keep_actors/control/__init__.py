"""The control socket, through which a shell asks a running runtime.

`place` makes it and says who may connect, `protocol` has the lines, `server` and `client` are its two ends.
`api.commands` declares the commands.
"""
