"""Twenty agents in one program: what each costs while it is idle, after a turn of its own.

Memory is the resident size of the process (`/proc/self/statm`) after twenty agents over that after one.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.config.trust import trust
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer, say

AGENTS = 20
BAR = 2.0  # MB of an agent


def resident() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


async def turn(host: Host, number: int) -> None:
    session = await host.new_session(agent=f"agent-{number}")
    await session.send(Submit(message=user("hello")))
    await run_until_idle(session)


async def measured(workspace: Path, url: str) -> float:
    host = await open_host(HostOptions(workspace, {"llm_url": url, "llm_model": "m"}), say=lambda _: None)
    try:
        await turn(host, 0)
        before = resident()
        for number in range(1, AGENTS + 1):
            await turn(host, number)
        return (resident() - before) / AGENTS
    finally:
        await host.aclose()


def main() -> int:
    with TemporaryDirectory() as folder, ScriptedServer([say("hi")] * (AGENTS + 1)) as server:
        os.environ |= {"HOME": folder, "AGENT_DATA_DIR": f"{folder}/data"}
        workspace = Path(folder) / "ws"
        (workspace / ".lmagent" / "agents").mkdir(parents=True)
        for number in range(AGENTS + 1):
            text = f'name = "agent-{number}"\ntype = "task-oriented"\nsystem_prompt = "{"You are an agent. " * 100}"\n'
            (workspace / ".lmagent" / "agents" / f"a{number}.toml").write_text(text)
        trust(Path(folder) / "data", workspace)
        each = anyio.run(measured, workspace, server.base_url)
    print(json.dumps({"ok": each <= BAR, "agents": AGENTS, "mb_each": round(each, 2)}))
    return 0 if each <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
