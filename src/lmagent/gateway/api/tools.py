"""Tools: the agent's tools with their arguments."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lmagent.core.tool import Effect
from lmagent.gateway.http.route import Call, Route


class ToolRow(Struct, frozen=True):
    """A tool.

    Attributes:
        description: for the model.
        effect: its kind of side effects.
        parameters: JSON schema of its arguments.
        aliases: other accepted names.
        deferred: listed in a catalogue instead of in every prompt.
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
    return Tools(
        tuple(
            ToolRow(tool.name, tool.description, tool.effect, tool.spec.parameters, tool.aliases, tool.deferred)
            for tool in call.gateway.host.toolbox
        )
    )


ROUTES = (Route("GET", "/api/tools", list_tools, "The tools, with their parameters", answer=Tools),)
