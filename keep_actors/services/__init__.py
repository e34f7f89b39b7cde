"""Connectors that are there: each is made of settings, in Python or by a section of `keep.toml`."""
