"""Puts a runtime together, starts it and ends it."""
