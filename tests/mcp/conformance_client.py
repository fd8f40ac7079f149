"""A client for the conformance package: connects with lmagent's own code to an address, and calls tools.

    conformance_client.py FOLDER

The package starts a client for each scenario, which would load the SDK each time. So this process stays for all of
them: FOLDER/client is the command to start, a script that hands scenario, context and address to this process through a
pipe, and prints and ends as the answer says.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import traceback
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

COMMAND = """#!/bin/sh
printf '%s\\n' "$MCP_CONFORMANCE_SCENARIO" "${MCP_CONFORMANCE_CONTEXT:-{\\}}" "$1" >"$0.asked"
{ read -r status; cat; } <"$0.answered"
exit "$status"
"""
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


def client(folder: str, scenario: str, given: dict[str, Any]) -> OAuthClient:
    """The client that the scenario gives."""
    if scenario == "auth/basic-cimd":
        return OAuthClient(client_id=DOCUMENT)
    if "client_id" not in given:
        return OAuthClient()
    grant = "client_credentials" if "client-credentials" in scenario else "authorization_code"
    key = Path(folder, "key.pem") if "private_key_pem" in given else ""
    if key:
        key.write_text(given["private_key_pem"])
    return OAuthClient(given["client_id"], given.get("client_secret", ""), str(key), grant=grant)


def arguments(schema: dict[str, Any]) -> dict[str, Any]:
    simple = {"string": "hello", "number": 2, "integer": 2, "boolean": True}
    return {name: simple.get(each.get("type"), 2) for name, each in schema.get("properties", {}).items()}


def calls(tools: tuple[McpTool, ...], scenario: str, given: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The calls that the scenario asks for: those that it names, or each tool once."""
    if scenario == "json-schema-ref-no-deref":
        return
    schemas = {tool.name: tool.schema for tool in tools}
    if "json_schema_echo" in schemas:
        yield "json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]}
    elif named := given.get("toolCalls"):
        yield from ((call["name"], call["arguments"]) for call in named)
    else:
        yield from ((name, arguments(schema)) for name, schema in schemas.items())


async def use(servers: McpServers, name: str, scenario: str, given: dict[str, Any]) -> None:
    for tool, wanted in calls((await servers.ready(name)).tools, scenario, given):
        print(await servers.call(name, tool, wanted, Accepts()))


async def main(scenario: str, given: dict[str, Any], address: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        workspace, data = Path(folder, "work"), Path(folder, "data")
        workspace.mkdir()
        spec = ServerSpec("tested", url=address, oauth=client(folder, scenario, given))
        servers = McpServers(workspace, LoadedServers((spec,)), data, SandboxRequest(env=dict(os.environ)), auth_of)
        try:
            for _ in range(LOGINS + 1):
                try:
                    await use(servers, spec.name, scenario, given)
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


def serve(command: Path) -> None:
    """Be the client of one scenario after the other."""
    asked, answered = Path(f"{command}.asked"), Path(f"{command}.answered")
    os.mkfifo(asked)
    os.mkfifo(answered)
    command.write_text(COMMAND)
    command.chmod(0o700)
    print("ready", flush=True)
    while True:
        scenario, given, address = asked.read_text().splitlines()
        with io.StringIO() as output, contextlib.redirect_stdout(output):
            try:
                status = anyio.run(main, scenario, json.loads(given), address)
            except Exception:  # noqa: BLE001  # whatever it is, it is the end of this scenario only
                status = 1
                traceback.print_exc(file=output)
            answered.write_text(f"{status}\n{output.getvalue()}")


if __name__ == "__main__":
    serve(Path(sys.argv[1], "client"))
