"""The tools of a Model Context Protocol server that a person has seen, as what the operator says they are."""

from keep_actors.services.mcp.connector import Mcp
from keep_actors.services.mcp.granted import GrantedTool
from keep_actors.services.mcp.settings import McpSettings, ToolReconcile, ToolSettings

__all__ = ["GrantedTool", "Mcp", "McpSettings", "ToolReconcile", "ToolSettings"]
