"""Servers that hang, flood, or send nonsense at a step of the protocol: one line, bounded memory, and no other server
is affected. The programs run in the sandbox."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import anyio
import pytest
from mcp_kit import Opened, Watcher, run, until

from lmagent.core.errors import ToolError
from lmagent.mcp.protocol import connection
from lmagent.mcp.protocol.messages import DESCRIBED, PAGES, ROWS
from lmagent.mcp.servers import McpServers
from lmagent.mcp.spec import ElicitationAnswer, ServerSpec

HOSTILE = Path(__file__).with_name("hostile_server.py")

UNREADABLE = "died during the call of .*: it sent an answer that cannot be read"
FAST = "died during the call of .*: it sent more than 32 MB faster than that can be handled"
SILENT = r"no sign of progress for 1.5 seconds"
VALUES = "it sent more than 50,000 values at once"
REQUESTS = "more than 100 requests without waiting for the answers"

CALLS = [
    ("no-json", UNREADABLE),
    ("no-result", UNREADABLE),
    ("many-values", VALUES),
    ("ping", REQUESTS),
    *(
        pytest.param(fault, said, marks=pytest.mark.long)
        for fault, said in (
            ("deep", UNREADABLE),
            ("no-utf8", UNREADABLE),
            ("wide", UNREADABLE),
            ("no-types", "protocol does not allow: content"),
            ("huge", "protocol does not allow: content"),
            ("die", "status 3: out of order"),
            ("hang", SILENT),
            ("wrong-id", SILENT),
            ("close", SILENT),
            ("flood", "a line of more than 16 MB"),
            ("small", FAST),
            ("lines", FAST),
            ("changed", SILENT),
            ("ask", REQUESTS),
            ("huge-progress", "The call is not repeated"),
        )
    ),
]


def hostile(opened: Opened, step: str, fault: str, **options: object) -> McpServers:
    """Return a server that misbehaves, and one that does not."""
    shutil.copy(HOSTILE, opened.workspace)
    bad = ServerSpec("bad", ("python3", HOSTILE.name, step, fault), **options)  # type: ignore[arg-type]
    return opened.servers(bad, opened.faulty(name="good"))


def memory() -> int:
    """Return the megabytes that this process has used at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@pytest.mark.parametrize(("fault", "said"), CALLS)
def test_a_call_of_a_server_that_misbehaves_ends_with_one_line(opened: Opened, fault: str, said: str) -> None:
    servers = hostile(opened, "tools/call", fault, call_timeout=30 if said != SILENT else 1.5)

    async def work() -> None:
        await servers.ready("good")
        await servers.ready("bad")
        before, watcher = memory(), Watcher(answer=ElicitationAnswer("decline"))
        with pytest.raises(ToolError, match=said) as failure:
            await servers.call("bad", "echo", {}, watcher)
        assert "\n" not in str(failure.value)
        assert memory() - before < (300 if fault == "many-values" else 100)
        assert (await servers.call("good", "echo", {"text": "here"}, Watcher())).parts[0].text == "here"

    run(work)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("large-pages", "its lists of tools, prompts and resources are larger than 4 MB"),
        *(
            pytest.param(fault, said, marks=pytest.mark.long)
            for fault, said in (
                ("hang", "not ready within 5 seconds"),
                ("close", "not ready within 5 seconds"),
                ("flood", "a line of more than 16 MB"),
                ("small", "faster than that can be handled"),
                ("wide", "an answer that cannot be read"),
                ("no-types", "the protocol does not allow"),
                ("die", "status 3: out of order"),
            )
        ),
    ],
)
@pytest.mark.parametrize("step", ["tools/list", *(pytest.param("initialize", marks=pytest.mark.long),)])
def test_a_server_that_misbehaves_before_it_is_ready_fails_with_one_line(
    opened: Opened, step: str, fault: str, said: str
) -> None:
    if (step, fault) == ("initialize", "large-pages"):
        return
    servers = hostile(opened, step, fault, start_timeout=5.0)

    async def work() -> None:
        servers.start()
        await servers.ready("good")
        before = memory()
        with pytest.raises(ToolError, match=said) as failure:
            await servers.ready("bad")
        assert "\n" not in str(failure.value)
        assert memory() - before < 150

    run(work)
    assert servers.states()[0].fix


def test_pages_without_end_are_read_to_a_limit(opened: Opened) -> None:
    servers = hostile(opened, "tools/list", "pages")
    assert len(run(lambda: servers.ready("bad")).tools) == PAGES


def test_more_tools_than_can_be_used_are_cut_and_those_with_odd_schemas_are_not_offered(opened: Opened) -> None:
    assert len(run(lambda: hostile(opened, "tools/list", "many-tools").ready("bad")).tools) == ROWS
    long, deep, untyped, array, *none = run(lambda: hostile(opened, "tools/list", "odd-tools").ready("bad")).tools
    assert (len(long.description), long.fault) == (DESCRIBED, "")
    assert deep.fault.startswith("its schema has 1,000,")
    assert deep.schema == {}
    assert (untyped.schema["properties"], untyped.fault) == ({"a": {}}, "")
    assert array.fault == "its arguments are array, not an object"
    assert [(tool.name, tool.fault) for tool in none] == [
        (name, "its schema is no JSON object") for name in ("text", "none")
    ]


def test_a_second_answer_is_dropped(opened: Opened) -> None:
    servers = hostile(opened, "tools/call", "twice")

    async def work() -> None:
        for _ in range(2):
            assert (await servers.call("bad", "echo", {}, Watcher())).parts[0].text == "done"

    run(work)


def test_a_call_with_progress_without_end_ends(opened: Opened) -> None:
    servers = hostile(opened, "tools/call", "progress", call_timeout=0.1)

    async def work() -> None:
        with pytest.raises(ToolError, match=r"no result within 1.2 seconds"):
            await servers.call("bad", "echo", {}, Watcher())

    run(work)


def test_the_time_of_a_call_stands_still_while_the_user_is_asked(opened: Opened) -> None:
    servers = opened.servers(opened.bare(call_timeout=0.3))

    class Slow(Watcher):
        async def elicit(self, request: object) -> ElicitationAnswer:
            await anyio.sleep(0.6)
            return ElicitationAnswer("accept", {"name": "Bo"})

    async def work() -> None:
        await servers.ready("bare")
        result = await servers.call("bare", "ask", {}, Slow())
        assert "Bo" in result.parts[0].text

    run(work)


def test_a_list_that_keeps_changing_is_read_now_and_then(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[float] = []
    read = connection.messages.read_manifest

    async def counted(client: object) -> object:
        reads.append(anyio.current_time())
        return await read(client)  # type: ignore[arg-type]

    monkeypatch.setattr(connection.messages, "read_manifest", counted)
    servers = hostile(opened, "tools/call", "changed", call_timeout=2.0)

    async def work() -> None:
        with pytest.raises(ToolError, match="no sign of progress"):
            await servers.call("bad", "echo", {}, Watcher())
        await until(lambda: len(reads) >= 2)

    run(work)
    assert len(reads) <= 3  # at the start, and twice
