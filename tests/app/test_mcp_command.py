"""/mcp: the servers with their states, and one with all that it offers."""

from __future__ import annotations

import pytest

from lmagent.app.commands.mcp import commands, target
from lmagent.app.slash import SlashContext
from lmagent.core.errors import ConfigError
from lmagent.core.view import View
from lmagent.mcp.spec import McpManifest, McpPrompt, McpResource, McpState, McpTool, ServerSpec
from lmagent.testing.fakes.servers import FakeServer, FakeServers

pytestmark = pytest.mark.anyio

ECHO = McpTool(
    "echo", "Say it\x1b[2J again.", {"properties": {"text": {"type": "string"}, "n": {}}, "required": ["text"]}
)
OFFER = McpManifest(
    "made 1.0", "", (ECHO,), (McpResource("notes://a", "a"),), (McpPrompt("greet", "", (("who", True),)),)
)


class HostOf:
    """What /mcp needs of a host."""

    def __init__(self, registry) -> None:
        self.registry = registry


@pytest.fixture
def mcp(tmp_path, monkeypatch):
    from lmagent.app.wiring import registry_of
    from lmagent.config.settings import Settings

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    registry = registry_of(tmp_path, Settings())

    async def run(line: str = "", **servers: FakeServer) -> str:
        if servers:
            registry.mcp = FakeServers(servers)
        (command,) = commands()
        return (await command.run(SlashContext(HostOf(registry), None, View()), line)).text  # type: ignore[arg-type]

    return run


async def test_each_server_has_its_state_its_offer_what_it_may_do_and_the_fix(mcp):
    broken = FakeServer(status="failed", reason="nope: not found", fix="install nope", known=False)
    text = await mcp(a=FakeServer(OFFER), b=broken)
    assert text.splitlines()[:4] == [
        "a: idle, 1 tool, 1 resource, 1 prompt; may do: sandbox",
        "b: failed; may do: sandbox",
        "  nope: not found",
        "  → install nope",
    ]


async def test_a_named_server_is_shown_with_parameters_and_nothing_hides_in_its_texts(mcp):
    text = await mcp("a", a=FakeServer(OFFER))
    assert "  echo(text: string, n?)\n      Say it\\x1b[2J again." in text
    assert "  notes://a" in text
    assert "  greet(who)" in text


async def test_a_server_is_started_anew_and_its_log_is_shown(mcp):
    assert "restarted" not in await mcp("a", a=FakeServer(OFFER, log=("one", "\x1b[31mtwo")))
    assert await mcp("restart a") == "a: ready, started again 1 time, 1 tool, 1 resource, 1 prompt; may do: sandbox"
    assert await mcp("logs a") == "one\ntwo"


async def test_an_unknown_or_untrusted_server_is_refused_with_the_next_step(mcp):
    with pytest.raises(ConfigError, match="no MCP server 'b'"):
        await mcp("b", a=FakeServer(OFFER))
    with pytest.raises(ConfigError, match="a is not started"):
        await mcp("restart a", a=FakeServer(status="untrusted", reason="the folder is not trusted", fix="trust it"))


async def test_without_servers_it_says_how_to_add_one(mcp):
    assert "lmagent mcp add NAME" in await mcp()


def test_the_value_of_a_key_in_a_command_is_not_shown(monkeypatch):
    monkeypatch.setenv("NOTES_API_KEY", "sk-secret-123")
    spec = ServerSpec("notes", ("notes-server", "--api-key", "sk-secret-123", "--level", "high"))
    assert target(McpState(spec, "idle")) == "notes-server --api-key ${NOTES_API_KEY} --level high"


async def test_a_tool_that_the_model_cannot_use_says_why(mcp):
    broken = (McpTool("a", "A.", fault="its schema has 300,000 bytes"),)
    text = await mcp("x", x=FakeServer(McpManifest(tools=broken)))
    assert "not offered to the model: its schema has 300,000 bytes" in text
