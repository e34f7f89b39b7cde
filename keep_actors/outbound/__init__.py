"""Sending to services outside: one HTTP request, and secrets that are never shown."""
