"""A Model Context Protocol server with two tickets, on stdio, as a company might have one."""

from mcp.server import MCPServer
from mcp.types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("tickets")


class Ticket(BaseModel):
    id: str
    title: str
    priority: str


class Tickets(BaseModel):
    tickets: list[Ticket]


TICKETS = [
    Ticket(id="T-1", title="The shop is down", priority="urgent"),
    Ticket(id="T-2", title="A word is misspelled", priority="low"),
]


@server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
def list_tickets(priority: str) -> Tickets:
    """List the open tickets of a priority."""
    return Tickets(tickets=[each for each in TICKETS if each.priority == priority])


if __name__ == "__main__":
    server.run()
