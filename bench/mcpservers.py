"""Twenty MCP servers with 300 tools, some of them faulty: the start, the prompt, and a turn that uses them.

    python bench/mcpservers.py [--quick]

The servers are real programs in the sandbox. One hangs at its start, one prints noise on its standard output, one dies
in a call, one answers with 100 MB, and one changes its tools while the turn runs.

The runs without servers have a task that is longer by the servers' note: from 2,500 tokens on, lmagent asks a model
server that does not identify itself for its window, whatever made the prompt that long.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import anyio
from lab import TASK, Lab

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import Submit
from lmagent.core.events import ToolFinished
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

SERVERS = 20
HUNG, LOUD = "server18", "server19"
PROMPT, START = 1200, 1.05


def use(name: str, /, **arguments: Any) -> Any:
    """A call through use_tool."""
    return call("use_tool", name=name, arguments=arguments)


SCRIPT = [
    use("describe", name="server00"),
    use("server00_get_issue", text="a"),
    use("server01_die", text="b"),
    use("server02_flood", text="c"),
    use(f"{HUNG}_get_issue", text="d"),
    use(f"{LOUD}_get_issue", text="e"),
    use("server03_change", text="f"),
    use("server03_get_issue", text="g"),
    use("server01_get_issue", text="h"),
    say("Done."),
]
WORK = ["ok", "ok", "error", "error", "error", "ok", "ok", "ok", "ok"]
"""The status of each call: those that die, flood or hang are errors, and the next ones work."""


def configure(lab: Lab) -> None:
    """Write the user's `mcp.json`."""
    shutil.copy(Path(__file__).with_name("mcp_server.py"), lab.workspace)
    faults = {HUNG: ["hang"], LOUD: ["noise"]}
    names = [f"server{number:02}" for number in range(SERVERS)]
    entries = {
        name: {"command": "python3", "args": ["mcp_server.py", name, *faults.get(name, [])], "start_timeout": 20}
        for name in names
    }
    entries[HUNG]["start_timeout"] = 3
    file = lab.home / ".config" / "lmagent" / "mcp.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": entries}))


async def turn(workspace: Path, script: list[Any]) -> dict[str, Any]:
    """Run a turn with the servers; return what became of it."""
    done: list[ToolFinished] = []
    with ScriptedServer(script, strict=True) as server:
        flags = {"llm_url": server.base_url, "permission_mode": "auto"}
        host = await open_host(HostOptions(workspace, flags), say=print)
        try:
            session = await host.new_session()
            session.listen(lambda event: done.append(event) if isinstance(event, ToolFinished) else None)
            await session.send(Submit(message=user("use the servers")))
            begun = time.monotonic()
            await run_until_idle(session)
            seconds = time.monotonic() - begun
            outcome = session.state.notes.get("mcp", "")
            tools = sum(len(found.tools) for found in map(host.registry.mcp.manifest, names_of(host)) if found)
        finally:
            await host.aclose()
        bodies = [chat.body for chat in server.chats]
    return {
        "statuses": [event.status for event in done],
        "seconds": round(seconds, 1),
        "requests": len(bodies),
        "prefix": min(map(shared, bodies[:-1], bodies[1:]), default=1.0),
        "notes": sum(str(message["content"]).count("<mcp>") for message in bodies[-1]["messages"]),
        "note_bytes": len(outcome.encode()),
        "tools": tools,
    }


def names_of(host: Any) -> list[str]:
    """Return the names of the servers."""
    return [state.spec.name for state in host.registry.mcp.states()]


def shared(earlier: dict[str, Any], later: dict[str, Any]) -> float:
    """Return the share of the earlier prompt with which the later one begins."""
    if earlier["tools"] != later["tools"]:
        return 0.0
    before, after = (json.dumps(body["messages"])[1:-1] for body in (earlier, later))
    same = next((at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
    return round(same / len(before), 3)


def main() -> int:
    """Print the figures; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    runs = 5 if parser.parse_args().quick else 21
    with Lab() as plain, Lab() as full:
        configure(full)
        os.environ["HOME"] = str(full.home)
        for name in [name for name in os.environ if name.startswith("XDG")]:
            del os.environ[name]
        first = anyio.run(turn, full.workspace, SCRIPT)
        second = anyio.run(turn, full.workspace, [say("Done.")])
        bare, served = plain.server("--steps", "0"), full.server("--steps", "0")
        grown = full.agent(served).chats[0]["body_bytes"] - plain.agent(bare).chats[0]["body_bytes"]
        task = TASK + " Go on." * (grown // len(" Go on."))
        pairs = [(plain.agent(bare, task=task), full.agent(served)) for _ in range(1 + runs)][1:]
        ratio = median(b.start_ms / a.start_ms for a, b in pairs)
    figures = {
        "start_ms": round(median(run.start_ms for run, _ in pairs), 1),
        "start_with_servers_ms": round(median(run.start_ms for _, run in pairs), 1),
        "start_ratio": round(ratio, 3),
        "prompt_grown_bytes": grown,
        "prompt_grown_tokens": grown // 3,
        "first_turn": first,
        "second_turn": second,
    }
    good = (
        ratio <= START
        and grown // 3 <= PROMPT
        and first["statuses"] == WORK
        and first["prefix"] == second["prefix"] == 1.0
        and second["notes"] == 1
    )
    print(json.dumps({"ok": good, **figures}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
