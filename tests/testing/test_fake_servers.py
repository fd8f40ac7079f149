"""FakeServers behaves as the interface `Servers` says."""

from __future__ import annotations

import anyio
import pytest

from lmagent.core.errors import ToolError
from lmagent.mcp.spec import McpManifest, McpResult, McpTool, Part, Servers
from lmagent.testing.fakes import FakeServer, FakeServers

pytestmark = pytest.mark.anyio

ECHO = McpManifest(tools=(McpTool("echo"),))


async def test_a_server_is_ready_after_start_and_answers_a_call() -> None:
    fake = FakeServers({"one": FakeServer(ECHO)})
    servers: Servers = fake
    names = list[str]()
    servers.changed = names.append
    servers.start()
    assert [state.status for state in servers.states()] == ["ready"]
    assert names == ["one"]
    answer = await servers.call("one", "echo", {"text": "hi"}, None)  # type: ignore[arg-type]
    assert answer == McpResult((Part("text", "echo {'text': 'hi'}"),))
    assert fake.calls == [("one", "echo", {"text": "hi"})]


async def test_ready_waits_for_a_server_that_starts() -> None:
    fake = FakeServers({"late": FakeServer(ECHO, known=False, status="starting")})
    assert fake.manifest("late") is None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fake.ready, "late")
        await anyio.wait_all_tasks_blocked()
        fake.arrive("late")
    assert fake.manifest("late") == ECHO


async def test_a_failed_server_says_why() -> None:
    fake = FakeServers({"bad": FakeServer(status="failed", reason="no such program")})
    with pytest.raises(ToolError, match="no such program"):
        await fake.ready("bad")
