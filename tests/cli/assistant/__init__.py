"""Assistants: the server of `keep mcp`, asked by the official client."""
