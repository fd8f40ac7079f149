"""A client for the conformance package: connects with lmagent's own code to the address given last, and calls tools."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio

from lmagent.core.errors import ToolError
from lmagent.mcp.config import LoadedServers
from lmagent.mcp.oauth import auth_of, login
from lmagent.mcp.servers import McpServers
from lmagent.mcp.spec import Elicitation, ElicitationAnswer, McpTool, OAuthClient, SamplingRequest, ServerSpec
from lmagent.sandbox.environment import SandboxRequest

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
GIVEN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
DOCUMENT = "https://conformance-test.local/client-metadata.json"
LOGINS = 3
"""More logins in a row than these help no user."""


class Accepts:
    """Answers what a server asks during a call."""

    def progress(self, text: str) -> None:
        print(text)

    async def sample(self, request: SamplingRequest) -> str | None:
        return None

    async def elicit(self, request: Elicitation) -> ElicitationAnswer:
        fields: dict[str, Any] = request.schema.get("properties", {})
        return ElicitationAnswer(
            "accept", {name: each["default"] for name, each in fields.items() if "default" in each}
        )


def browser(address: str) -> bool:
    with urllib.request.urlopen(address) as page:  # follows the redirect to our own listener
        page.read()
    return True


def client(folder: str) -> OAuthClient:
    """The client that the scenario gives, in the environment."""
    if SCENARIO == "auth/basic-cimd":
        return OAuthClient(client_id=DOCUMENT)
    if "client_id" not in GIVEN:
        return OAuthClient()
    grant = "client_credentials" if "client-credentials" in SCENARIO else "authorization_code"
    key = Path(folder, "key.pem") if "private_key_pem" in GIVEN else ""
    if key:
        key.write_text(GIVEN["private_key_pem"])
    return OAuthClient(GIVEN["client_id"], GIVEN.get("client_secret", ""), str(key), grant=grant)


def arguments(schema: dict[str, Any]) -> dict[str, Any]:
    simple = {"string": "hello", "number": 2, "integer": 2, "boolean": True}
    return {name: simple.get(each.get("type"), 2) for name, each in schema.get("properties", {}).items()}


def calls(tools: tuple[McpTool, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The calls that the scenario asks for: those that it names, or each tool once."""
    if SCENARIO == "json-schema-ref-no-deref":
        return
    schemas = {tool.name: tool.schema for tool in tools}
    if "json_schema_echo" in schemas:
        yield "json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]}
    elif named := GIVEN.get("toolCalls"):
        yield from ((call["name"], call["arguments"]) for call in named)
    else:
        yield from ((name, arguments(schema)) for name, schema in schemas.items())


async def use(servers: McpServers, name: str) -> None:
    for tool, given in calls((await servers.ready(name)).tools):
        print(await servers.call(name, tool, given, Accepts()))


async def main(address: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        workspace, data = Path(folder, "work"), Path(folder, "data")
        workspace.mkdir()
        spec = ServerSpec("tested", url=address, oauth=client(folder))
        servers = McpServers(workspace, LoadedServers((spec,)), data, SandboxRequest(env=dict(os.environ)), auth_of)
        try:
            for _ in range(LOGINS + 1):
                try:
                    await use(servers, spec.name)
                    return 0
                except ToolError as error:
                    print(error)
                    if "mcp login" not in str(error):
                        return 1
                await login(spec, data, print, browser)
                await servers.restart(spec.name)
            return 1
        finally:
            await servers.aclose()


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[-1]))
