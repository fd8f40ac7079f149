"""Tools: what the agent can call, with the arguments of each."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lmagent.core.tool import Effect
from lmagent.gateway.http.route import Call, Route


class ToolRow(Struct, frozen=True):
    """A tool.

    Attributes:
        name: as it is advertised.
        description: what the model is told about it.
        effect: what it can do to the world.
        parameters: JSON schema of its arguments.
        aliases: other names that are understood.
        deferred: it is not in every prompt; it stands in a catalogue.
    """

    name: str
    description: str
    effect: Effect
    parameters: dict[str, Any]
    aliases: tuple[str, ...]
    deferred: bool


class Tools(Struct, frozen=True):
    """All tools, in the order of their registration."""

    tools: tuple[ToolRow, ...]


async def list_tools(call: Call) -> Tools:
    """The tools of this program, those of plugins included."""
    return Tools(
        tuple(
            ToolRow(tool.name, tool.description, tool.effect, tool.spec.parameters, tool.aliases, tool.deferred)
            for tool in call.gateway.host.toolbox
        )
    )


ROUTES = (Route("GET", "/api/tools", list_tools, "The tools, with their parameters", answer=Tools),)
