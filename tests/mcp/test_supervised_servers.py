"""Servers that run: calls, what a server asks for, faults, restarts, logs, manifests. Real processes, real sandbox."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio
import pytest
from mcp_kit import FAULTY, Opened, Watcher, run, until

from lmagent.core.errors import ToolError
from lmagent.mcp.protocol.supervisor import TRIES
from lmagent.mcp.servers import McpServers
from lmagent.mcp.spec import ElicitationAnswer, McpState, Needs, ServerSpec


def state(servers: McpServers) -> McpState:
    return servers.states()[0]


async def said(servers: McpServers, tool: str, watcher: Watcher | None = None, **arguments: object) -> str:
    result = await servers.call(servers.states()[0].spec.name, tool, arguments, watcher or Watcher())
    return result.parts[0].text


def test_a_server_is_started_in_the_sandbox_and_called(opened: Opened) -> None:
    servers = opened.servers(opened.faulty())
    changes: list[str] = []
    servers.changed = changes.append

    async def work() -> None:
        assert servers.manifest("faulty") is None
        servers.start()
        servers.start()
        manifest = await servers.ready("faulty")
        assert (manifest.server, manifest.instructions) == ("faulty 1", "x")
        assert [tool.name for tool in manifest.tools][:5] == ["echo", "die", "slow", "ask", "think"]  # two pages
        assert await said(servers, "echo", text="hello") == "hello"
        found = json.loads(await said(servers, "env"))
        assert found["HOME"] == "/home/agent"
        assert found["LMAGENT_SANDBOX"] == "1"
        assert "LMAGENT_CHANNEL" not in found
        assert json.loads(await said(servers, "roots"))["roots"][0]["uri"] == opened.workspace.as_uri()

    run(work)
    assert state(servers).status == "ready"
    assert state(servers).confinement == "sandbox"
    assert changes[0] == "faulty"


def test_a_home_is_kept_between_runs_and_nothing_else_outside_of_the_workspace_can_be_written(opened: Opened) -> None:
    async def work() -> None:
        for _ in range(2):
            servers = opened.servers(opened.faulty())
            await said(servers, "touch", path="/home/agent/kept")
            with pytest.raises(ToolError, match="died during the call"):
                await said(servers, "touch", path=str(opened.data / "not"))
            await servers.aclose()

    run(work)
    (kept,) = opened.data.glob("mcp/homes/*/home/kept")
    assert kept.read_text() == "here\nhere\n"
    assert not (opened.data / "not").exists()


def test_what_a_server_needs_is_all_that_it_gets(opened: Opened, tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
    needs = Needs(paths=(f"{tmp_path}/mine:rw", f"{tmp_path}/theirs"))
    servers = opened.servers(opened.faulty(needs=needs))

    async def work() -> None:
        await said(servers, "touch", path=f"{tmp_path}/mine/a")
        with pytest.raises(ToolError, match="Read-only file system"):
            await said(servers, "touch", path=f"{tmp_path}/theirs/a")

    run(work)
    assert (tmp_path / "mine" / "a").exists()
    assert state(servers).confinement == f"sandbox, paths: {tmp_path}/mine:rw, {tmp_path}/theirs"


def test_a_server_without_a_sandbox_gets_little_of_the_environment_and_ends_with_us(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    servers = opened.servers(opened.bare(env={"OWN": "1"}))

    async def work() -> None:
        found = json.loads(await said(servers, "env"))
        assert found["OWN"] == "1"
        assert found["HOME"] == os.environ["HOME"]
        assert "SECRET_KEY" not in found
        await servers.aclose()

    run(work)
    assert state(servers).status == "stopped"
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _is_ours(pid, opened)]


def _is_ours(pid: str, opened: Opened) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").resolve() == opened.workspace and "faulty" in Path(
            f"/proc/{pid}/cmdline"
        ).read_text(errors="replace")
    except OSError:
        return False


def test_progress_questions_and_requests_for_a_reply_reach_the_handler_of_the_call(opened: Opened) -> None:
    servers = opened.servers(opened.bare())

    async def work() -> None:
        watcher = Watcher()
        assert await said(servers, "progress", watcher) == "done"
        assert watcher.shown == ["step 1", "step 2", "step 3"]
        assert json.loads(await said(servers, "ask", watcher)) == {"action": "accept", "content": {"name": "Bo"}}
        assert json.loads(await said(servers, "think", watcher))["content"]["text"] == "four"
        first, second = watcher.asked
        assert (first.message, first.schema["properties"]) == ("Who?", {"name": {"type": "string"}})  # type: ignore[union-attr]
        assert second.messages == (("user", "2+2?"),)  # type: ignore[union-attr]
        no = Watcher(reply=None, answer=ElicitationAnswer("decline"))
        assert json.loads(await said(servers, "ask", no))["action"] == "decline"
        assert "declined" in json.loads(await said(servers, "think", no))["message"]

    run(work)


def test_a_cancelled_call_is_cancelled_at_the_server(opened: Opened) -> None:
    servers = opened.servers(opened.bare())

    async def work() -> None:
        await servers.ready("bare")
        with anyio.move_on_after(0.3) as scope:
            await said(servers, "slow", seconds=1)
        assert scope.cancelled_caught
        await until(lambda: any("cancelled " in line for line in servers.log("bare")))
        assert await said(servers, "echo", text="still here") == "still here"

    run(work)


def test_a_call_without_a_sign_of_progress_ends_and_one_with_progress_goes_on(opened: Opened) -> None:
    servers = opened.servers(opened.bare(call_timeout=0.25))

    async def work() -> None:
        await servers.ready("bare")
        assert await said(servers, "progress") == "done"  # 0.3 seconds
        with pytest.raises(ToolError, match=r"no sign of progress for 0.25 seconds"):
            await said(servers, "slow", seconds=0.6)

    run(work)


def test_a_server_that_dies_during_a_call_is_started_again_and_the_call_is_not_repeated(opened: Opened) -> None:
    servers = opened.servers(opened.faulty())

    async def work() -> None:
        with pytest.raises(ToolError, match="call of the tool die: it ended with status 3: out of order"):
            await said(servers, "die")
        assert await said(servers, "echo", text="again") == "again"

    run(work)
    assert state(servers).restarts == 1
    assert sum("out of order" in line for line in servers.log("faulty") if "stderr:" in line) == 1


def test_a_server_that_keeps_dying_fails_until_it_is_asked_for_again(opened: Opened) -> None:
    servers = opened.servers(opened.bare())

    async def work() -> None:
        for _ in range(TRIES + 1):
            with pytest.raises(ToolError, match="died during the call"):
                await said(servers, "die")
        await until(lambda: state(servers).status == "failed")
        assert "times in a row" in state(servers).reason
        assert await said(servers, "echo", text="asked") == "asked"

    run(work)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (ServerSpec("a", ("no-such-program",)), "no-such-program: not found"),
        (ServerSpec("a", ("python3", "faulty_server.py", "crash")), "status 7: cannot find its key"),
        (ServerSpec("a", ("python3", "faulty_server.py", "hang"), start_timeout=0.7), "not ready within 0.7 seconds"),
        (ServerSpec("a", ("python3", "faulty_server.py", "flood-stderr")), "more than 32 MB to its log"),
        (ServerSpec("a", ("true",)), "ended with status 0"),
        (ServerSpec("a", ("true",), cwd="../elsewhere"), "outside the workspace"),
        (ServerSpec("a", ("true",), needs=Needs(paths=("/no/such/folder",))), "/no/such/folder, which does not exist"),
        (ServerSpec("a", ("true",), needs=Needs(network=("http://x",))), "cannot be allowed"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value.command[-1:]),
)
def test_a_server_that_cannot_start_fails_with_one_line_and_the_next_thing_to_do(
    opened: Opened, spec: ServerSpec, said: str
) -> None:
    servers = opened.servers(spec)

    async def work() -> None:
        with pytest.raises(ToolError) as failure:
            await servers.ready("a")
        assert said in str(failure.value)
        assert "\n" not in str(failure.value)

    run(work)
    assert state(servers).status == "failed"
    assert state(servers).fix
    size = sum(path.stat().st_size for path in opened.data.glob("mcp/logs/*"))
    assert size < 2_500_000


def test_noise_on_the_output_goes_to_the_log(opened: Opened) -> None:
    servers = opened.servers(opened.faulty("noise"))

    async def work() -> None:
        assert await said(servers, "echo", text="hello") == "hello"
        for line in ("Welcome!", "{not json}", "[1, 2]", "still talking"):
            assert any(line in logged for logged in servers.log("faulty"))

    run(work)


def test_a_flood_ends_the_server_in_bounded_memory_and_the_next_call_works(opened: Opened) -> None:
    import resource

    servers = opened.servers(opened.faulty())

    async def work() -> None:
        await servers.ready("faulty")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ToolError, match="it sent a line of more than 16 MB"):
            await said(servers, "flood")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 80_000  # kB
        assert await said(servers, "echo", text="dry") == "dry"

    run(work)


def test_a_changed_list_is_read_again_and_kept_for_the_next_time(opened: Opened) -> None:
    servers = opened.servers(opened.bare())

    async def work() -> None:
        before = len((await servers.ready("bare")).tools)
        await said(servers, "change")
        await until(lambda: len(servers.manifest("bare").tools) == before + 1)  # type: ignore[union-attr]

    run(work)
    later = opened.servers(opened.bare())
    assert later.manifest("bare") == servers.manifest("bare")
    assert state(later).status == "idle"
    (kept,) = opened.data.glob("mcp/manifests/*")
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text("{damaged")
    assert opened.servers(opened.bare()).manifest("bare") is None
    assert opened.servers(opened.bare("other")).manifest("bare") is None  # another command, another server


def test_servers_that_may_not_run_say_why_and_are_not_started(opened: Opened) -> None:
    off = opened.faulty(name="off", enabled=False)
    far = opened.faulty(name="strange", scope="workspace")
    servers = opened.servers(off, far, untrusted={"strange": ".mcp.json is in a folder you do not trust"})

    async def work() -> None:
        servers.start()
        for name, why in (("off", "disabled"), ("strange", "folder you do not trust.*lmagent config trust")):
            with pytest.raises(ToolError, match=why):
                await servers.call(name, "echo", {}, Watcher())
        with pytest.raises(ToolError, match="no MCP server 'other'; configured: off, strange"):
            await servers.ready("other")

    run(work)
    assert [each.status for each in servers.states()] == ["disabled", "untrusted"]
    assert not opened.data.exists()


def test_one_server_that_hangs_holds_up_no_other(opened: Opened) -> None:
    hanging = [opened.faulty("hang", name=f"h{number}", start_timeout=1.5) for number in range(3)]
    servers = opened.servers(*hanging, opened.bare())

    async def work() -> None:
        servers.start()
        await servers.ready("bare")
        assert {each.status for each in servers.states()} == {"starting", "ready"}
        await until(lambda: sum(each.status == "failed" for each in servers.states()) == 3)

    run(work)


def test_calls_from_several_event_loops_run_at_the_same_time(opened: Opened) -> None:
    servers = opened.servers(opened.bare())
    run(lambda: servers.ready("bare"))
    assert run(lambda: said(servers, "echo", text="first loop")) == "first loop"

    async def many() -> None:
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(check, number)

    async def check(number: int) -> None:
        assert await said(servers, "echo", text=str(number)) == str(number)

    run(many)


def test_a_restart_starts_the_server_anew(opened: Opened) -> None:
    servers = opened.servers(opened.bare())

    async def work() -> None:
        await servers.ready("bare")
        await said(servers, "change")
        await servers.restart("bare")
        assert len((await servers.ready("bare")).tools) == 11

    run(work)
    assert state(servers).restarts == 0


def test_a_program_of_the_users_own_path_is_found_in_the_sandbox(opened: Opened, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "my-server").write_text(f"#!/bin/sh\nexec python3 {opened.workspace}/{FAULTY.name}\n")
    (tools / "my-server").chmod(0o755)
    opened.request = type(opened.request)(env={**os.environ, "PATH": f"{tools}:/usr/bin:/bin"})
    servers = opened.servers(ServerSpec("mine", ("my-server",)))
    assert run(lambda: said(servers, "echo", text="found")) == "found"


def test_without_a_sandbox_nothing_runs_bare(opened: Opened) -> None:
    opened.request = type(opened.request)(env={"PATH": "/nowhere", "HOME": str(opened.data)}, backend="bubblewrap")
    servers = opened.servers(opened.faulty())

    async def work() -> None:
        with pytest.raises(ToolError, match="there is no sandbox here"):
            await servers.ready("faulty")

    run(work)
    assert "install" in state(servers).fix
    assert sys.executable  # the interpreter is there, and was not used
