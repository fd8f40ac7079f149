"""Commands of the agent and the network: none, listed hosts, and a question for every other one."""

from __future__ import annotations

import shutil
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import anyio
import pytest

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

pytestmark = [
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl: it is not installed"),
]


@pytest.fixture
def workspace(empty_workspace: Path) -> Path:
    return empty_workspace


def results(workspace: Path, command: str, *, hosts: tuple[str, ...] = (), answer: bool | None = None):
    """What the model is told of the command, and what a person was asked."""
    asked: list[ev.ApprovalRequested] = []

    async def main() -> str:
        with ScriptedServer([call("shell", command=command), say("Done.")]) as server:
            flags = {"llm_url": server.base_url, "permission_mode": "auto", "sandbox_hosts": hosts}
            options = HostOptions(workspace, flags, attended=answer is not None)
            host = await open_host(options, say=lambda _: None)
            try:
                session = await host.new_session()
                async with anyio.create_task_group() as tasks:

                    def listen(event: ev.Event) -> None:
                        if isinstance(event, ev.ApprovalRequested):
                            asked.append(event)
                            reply = Approve(approval=event.id, approved=bool(answer))
                            tasks.start_soon(session.send, reply)

                    session.listen(listen)
                    await session.send(Submit(message=user("fetch it")))
                    await run_until_idle(session)
                return str(server.chats[1].body["messages"][-1]["content"])
            finally:
                await host.aclose()

    return anyio.run(main), asked


def test_there_is_no_network_unless_hosts_are_listed(workspace):
    told, asked = results(
        workspace, "curl -sS http://127.0.0.1:9/ 2>&1; curl -sS http://example.test/ 2>&1", answer=True
    )
    assert "Couldn't connect" in told or "Failed to connect" in told
    assert "resolve" in told
    assert asked == []


def test_a_listed_host_is_reached(workspace, tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "page").write_text("the page")

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(tmp_path / "served"))

        def log_message(self, *_):
            """Be quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        told, asked = results(workspace, f"curl -sS http://{address}/page", hosts=(address,))
        server.shutdown()
    assert told == "the page"
    assert asked == []


@pytest.mark.parametrize("answer", [True, False])
def test_another_host_is_a_question_while_the_command_runs(workspace, answer):
    told, asked = results(workspace, "curl -sS http://example.test/", hosts=("listed.test",), answer=answer)
    assert [(item.tool, item.grant) for item in asked] == [("net", "net(example.test:80)")]
    assert ("Blocked by lmagent" in told) is not answer


def test_with_nobody_there_another_host_is_refused(workspace):
    told, _ = results(workspace, "curl -sS http://example.test/", hosts=("listed.test",))
    assert "Blocked by lmagent" in told


def test_a_pattern_that_is_none_is_said_before_anything_runs(workspace):
    told, _ = results(workspace, "touch ran; echo yes", hosts=("*.com",))
    assert "nothing was run" in told
    assert not (workspace / "ran").exists()
