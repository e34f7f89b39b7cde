"""Supervised actors that run untrusted automations and never lose, repeat or guess a side effect."""

from importlib.metadata import version

__version__ = version("keep-actors")
