"""The connector of tools of an MCP server."""
