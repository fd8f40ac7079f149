"""Servers as they are published: npm's reference server on both transports, and two of PyPI."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator

import anyio
import pytest
from mcp_kit import Opened, Watcher, run, until
from real_servers import CACHE, everything, python_server

from lmagent.core.errors import ToolError
from lmagent.mcp.servers import McpServers
from lmagent.mcp.spec import Elicitation, ElicitationAnswer, Needs, SamplingRequest, ServerSpec


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@contextlib.contextmanager
def http_everything(port: int) -> Generator[str]:
    """Run the reference server on a port; yields its address."""
    process = subprocess.Popen(
        ["node", str(everything()), "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def tried(servers: McpServers, name: str) -> None:
    """Use every kind of thing that the reference server has."""
    manifest = await servers.ready(name)
    tools = {tool.name: tool for tool in manifest.tools}
    assert {"echo", "get-sum", "trigger-long-running-operation"} <= set(tools)
    assert tools["echo"].schema["properties"]["message"]["type"] == "string"
    watcher = Watcher()

    async def call(tool: str, **arguments: object) -> tuple[str, ...]:
        result = await servers.call(name, tool, arguments, watcher)
        assert not result.is_error, result
        return tuple(part.text or part.uri or part.mime for part in result.parts)

    assert await call("echo", message="hi") == ("Echo: hi",)
    assert "5" in (await call("get-sum", a=2, b=3))[0]
    image = (await servers.call(name, "get-tiny-image", {}, watcher)).parts[1]
    assert (image.kind, image.mime, image.data[:4]) == ("image", "image/png", b"\x89PNG")
    structured = await servers.call(name, "get-structured-content", {"location": "Chicago"}, watcher)
    assert structured.structured["conditions"]
    links = await servers.call(name, "get-resource-links", {"count": 2}, watcher)
    assert [part.kind for part in links.parts] == ["text", "link", "link"]
    await call("trigger-long-running-operation", duration=0.6, steps=3)
    assert len(watcher.shown) == 3
    watcher.answer = ElicitationAnswer("accept", {"name": "Bo", "check": True})
    assert "declined" not in (await call("trigger-elicitation-request"))[0]
    await call("trigger-sampling-request", prompt="2+2?", maxTokens=10)
    assert {type(asked) for asked in watcher.asked} == {Elicitation, SamplingRequest}
    with anyio.move_on_after(0.3) as scope:
        await call("trigger-long-running-operation", duration=20, steps=5)
    assert scope.cancelled_caught
    assert any(resource.template for resource in manifest.resources)
    plain = next(resource for resource in manifest.resources if not resource.template)
    assert (await servers.read(name, plain.uri))[0].text
    assert {prompt.name for prompt in manifest.prompts} >= {"simple-prompt"}
    ((role, part), *_) = await servers.prompt(name, "simple-prompt", {})
    assert role == "user"
    assert part.text
    assert await call("echo", message="bye") == ("Echo: bye",)


def test_the_reference_server_works_over_stdio_in_the_sandbox(opened: Opened) -> None:
    needs = Needs(paths=(str(CACHE / "npm"),))
    servers = opened.servers(ServerSpec("everything", ("node", str(everything())), needs=needs))
    run(lambda: tried(servers, "everything"))


def test_the_reference_server_works_over_http(opened: Opened) -> None:
    with http_everything(free_port()) as url:
        servers = opened.servers(ServerSpec("everything", url=url))
        run(lambda: tried(servers, "everything"))
        assert servers.states()[0].confinement == "remote"


def test_an_http_server_that_goes_away_is_connected_to_again(opened: Opened) -> None:
    port = free_port()
    with http_everything(port) as url:
        servers = opened.servers(ServerSpec("everything", url=url))
        run(lambda: servers.ready("everything"))

    async def gone() -> None:
        with pytest.raises(ToolError, match="died during the call of the tool echo: nothing answers at"):
            await servers.call("everything", "echo", {"message": "x"}, Watcher())
        await until(lambda: servers.states()[0].status != "ready")
        with pytest.raises(ToolError, match=r"cannot be used.*nothing answers at"):
            await servers.call("everything", "echo", {"message": "x"}, Watcher())
        with http_everything(port):
            result = await servers.call("everything", "echo", {"message": "back"}, Watcher())
            assert result.parts[0].text == "Echo: back"

    run(gone)


@pytest.mark.long
def test_the_git_server_of_pypi_works_in_the_sandbox(opened: Opened) -> None:
    program = str(python_server("mcp-server-git"))
    subprocess.run(["git", "init", "-q", str(opened.workspace)], check=True)
    needs = Needs(paths=(str(CACHE / "python"),))
    servers = opened.servers(ServerSpec("git", (program, "--repository", str(opened.workspace)), needs=needs))

    async def work() -> None:
        manifest = await servers.ready("git")
        assert "git_status" in {tool.name for tool in manifest.tools}
        result = await servers.call("git", "git_status", {"repo_path": str(opened.workspace)}, Watcher())
        assert "faulty_server.py" in result.parts[0].text
        wrong = await servers.call("git", "git_status", {"repo_path": "/nowhere"}, Watcher())
        assert wrong.is_error

    run(work)


@pytest.mark.long
def test_the_fetch_server_of_pypi_reaches_only_the_hosts_that_its_entry_names(opened: Opened) -> None:
    from lmagent.testing import ScriptedServer

    program = str(python_server("mcp-server-fetch"))
    with ScriptedServer([]) as page:
        place = page.base_url.removeprefix("http://").split("/")[0]
        needs = Needs(paths=(str(CACHE / "python"),), network=(place,))
        command = (program, "--allow-private-ips", "--ignore-robots-txt")
        servers = opened.servers(ServerSpec("fetch", command, needs=needs))

        async def work() -> None:
            manifest = await servers.ready("fetch")
            assert [tool.name for tool in manifest.tools] == ["fetch"]
            assert manifest.prompts
            address = f"{page.base_url.rstrip('/')}/models"
            result = await servers.call("fetch", "fetch", {"url": address}, Watcher())
            assert not result.is_error, result.parts
            blocked = await servers.call("fetch", "fetch", {"url": "http://192.0.2.1/"}, Watcher())
            assert blocked.is_error

        run(work)
