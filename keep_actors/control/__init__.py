"""The control socket: how a shell talks to a running runtime, and nobody else does.

`place` says where it is and who may come in, `protocol` what can be asked, `server` and `client` are its two ends.
"""
