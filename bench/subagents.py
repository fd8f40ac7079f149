"""Tokens that a server with slots reads again while a session has three sub-agents do its work.

    python bench/subagents.py [--quick]

The server is the fake llama.cpp, which keeps prompts in its slots byte by byte as the real one does and counts what it
reads (`testkit.servers`). The main session reads files, has three tasks done by sub-agents (each reads files),
and reads on; so several times. `main_evicted` counts its requests for which something of its conversation had to be
read again, `children_prefix` the tokens of the fixed part (system text and tool block) that sub-agents had read again,
`ratio` what a client would read that keeps nothing (as one whose sub-agents begin with prompts of their own does, on
one slot) to what was read.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import msgspec

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, call, say

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from testkit.servers.llamacpp import LlamaCppServer

BAR = 5.0
FILES = 60
JITTER = 16
"""Tokens by which the cache may fall short: the last token is always read, and a reply is read when it comes back."""


def _own(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """Whose request it is (the objective of a sub-agent, else empty), and how often it has replied in its turn."""
    at = max(at for at, item in enumerate(messages) if item["role"] == "user" or "Objective: " in str(item["content"]))
    content = str(messages[at]["content"])
    objective = content.rpartition("Objective: ")[2].partition("\n")[0] if "Objective: " in content else ""
    return objective, sum(item["role"] == "assistant" for item in messages[at + 1 :])


def answer(steps: int) -> Any:
    """The model: reads files; in the middle of the main turn it has three tasks done."""

    def reply(received: Received) -> Behaviour:
        objective, done = _own(received.body["messages"])
        if objective:
            if done < steps:
                return call("read", path=f"{(len(objective) * 5 + done * 7) % FILES}.txt")
            arguments = {"status": "ok", "summary": f"{objective}: done."}
            return call("use_tool", name="report_result", arguments=arguments)
        if done == steps:
            tasks = [{"task_id": name, "objective": f"{name} part"} for name in ("first", "second", "third")]
            return call("use_tool", name="decompose", arguments={"manifest": tasks})
        return call("read", path=f"{done % FILES}.txt") if done < 2 * steps else say("All done.")

    return reply


async def play(slots: int, turns: int, steps: int, workspace: Path) -> dict[str, Any]:
    """A session of some turns against a server with so many slots; the figures."""
    with LlamaCppServer(answer(steps), context=65536 * slots, slots=slots) as server:
        flags = {"llm_url": server.base_url, "permission_mode": "auto"}
        host = await open_host(HostOptions(workspace, flags), say=print)
        session = await host.new_session()
        for _ in range(turns):
            await session.send(Submit(message=user("have it done in three parts")))
            await run_until_idle(session)
        fixed = (len(session.state.system.encode()) + len(msgspec.json.encode(session.state.tools))) // 4
        results = list(session.state.work.results.values())
        await host.aclose()
        rows = [
            (bool(_own(chat.body["messages"])[0]), row) for chat, row in zip(server.chats, server.kv.log, strict=True)
        ]
        evicted, held = 0, 0
        for child, row in rows:
            if not child:
                evicted += row.cached < held - JITTER
                held = row.tokens
        return {
            "calls": len(rows),
            "children": len(results),
            "ok": sum(result.status == "ok" for result in results),
            "read": server.kv.read,
            "ratio": round(sum(row.tokens for _, row in rows) / server.kv.read, 1),
            "main_evicted": evicted,
            "children_prefix": sum(max(0, fixed - row.cached) for child, row in rows if child),
        }


def main() -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    turns, steps = (1, 4) if parser.parse_args().quick else (3, 6)
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FILES):
            (Path(folder) / f"{number}.txt").write_text(f"line {number} of a file\n" * 40)
        for slots in (1, 2, 3, 4):
            figures[f"slots_{slots}"] = anyio.run(play, slots, turns, steps, Path(folder))
    rows = list(figures.values())
    figures["ok"] = all(
        row["ratio"] >= BAR and row["main_evicted"] == 0 and row["children_prefix"] == 0 and row["ok"] == 3 * turns
        for row in rows
    )
    print(json.dumps(figures))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
