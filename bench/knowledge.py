"""What memory and skills cost each session: tokens of the first prompt, the prefix that a server can keep, the start.

    python bench/knowledge.py [--quick]

`tokens_empty` is what the first prompt grows by with the memory's tools and no memory; `tokens_full` with a pinned part
and a list of skills that are larger than what is shown of them. `prefix_min` is the smallest share of a request that
the next one repeats, over turns that search and store, with a reflection on the sessions between them. `start_ratio`
compares one-shots in a folder with 100,000 memories, searched before, with those in an empty folder, in turns.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway import Gateway
from lab import Lab, agent_command, agent_env
from scripted import next_step

from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.prefix import canonical, common_prefix
from lmagent.testing.script import Behaviour, Reply, ScriptedCall, say, tool

EMPTY_BAR, FULL_BAR, START_BAR = 150, 600, 1.05


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what memory and skills cost each session.")
    parser.add_argument("--quick", action="store_true", help="20 steps, 10,000 memories, fewer starts")
    given = parser.parse_args()
    with Lab() as lab:
        figures = tokens(lab)
    with Lab() as lab:
        figures |= prefix(lab, 20 if given.quick else 100)
    with Lab() as lab:
        figures |= start(lab, 10_000 if given.quick else 100_000, 7 if given.quick else 21)
    bars = {
        "tokens_empty": figures["tokens_empty"] <= EMPTY_BAR,
        "tokens_full": figures["tokens_full"] <= FULL_BAR,
        "prefix_min": figures["prefix_min"] == 1.0,
        "start_ratio": figures["start_ratio"] <= START_BAR,
    }
    missed = [f"{name} is {figures[name]}" for name, holds in bars.items() if not holds]
    print(json.dumps({"ok": not missed, "error": "; ".join(missed), **figures}))
    return 1 if missed else 0


def tokens(lab: Lab) -> dict[str, Any]:
    """First prompts (bytes / 4) without the memory, with an empty one, and with more pinned than is shown."""
    with ScriptedServer(lambda received: say("Done.")) as server:

        def first(**more: str) -> int:
            seen = len(server.chats)
            subprocess.run(
                agent_command(lab.workspace, "hello"),
                env=agent_env(lab.home, server.base_url) | more,
                check=True,
                timeout=lab.timeout,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            return len(canonical(server.chats[seen].body)) // 4

        without, empty = first(ENABLE_MEMORY="false"), first()
        pinned = lab.workspace / ".lmagent" / "memory" / "MEMORY.md"
        pinned.parent.mkdir(parents=True, exist_ok=True)
        fact = "The release of part {} is built by the script in tools and needs the key of the team lead"
        pinned.write_text("\n".join(f"- {fact.format(number)}" for number in range(40)) + "\n")
        for number in range(20):
            skill = lab.home / ".agents" / "skills" / f"release-{number}" / "SKILL.md"
            skill.parent.mkdir(parents=True)
            told = f"How part {number} of the product is released, from the branch to the announcement, step by step"
            skill.write_text(f"---\nname: release-{number}\ndescription: {told}\n---\nRun the script.\n")
            allowed = [str(Path(sys.executable).with_name("lmagent")), "skills", "enable", skill.parent.name]
            subprocess.run(
                allowed,
                cwd=lab.workspace,
                env=agent_env(lab.home, server.base_url),
                check=True,
                capture_output=True,
                timeout=lab.timeout,
            )
        full = first()
        told = json.dumps(server.chats[-1].body)
        assert "needs the key of the team lead" in told
        assert "from the branch to the announcement" in told
    return {"tokens_without": without, "tokens_empty": empty - without, "tokens_full": full - without}


def prefix(lab: Lab, steps: int) -> dict[str, Any]:
    """Requests of two turns of a gateway that search and store, with a reflection between them."""

    def script(received: Received) -> Behaviour:
        if not received.tool_names:
            places = re.findall(r"\[(\d+)\] ", str(received.messages[-1]["content"]))
            fact = {"text": "The user always wants the notes read by number", "kind": "preference", "evidence": places}
            return say(json.dumps({"facts": [fact]}))
        step = next_step(received)
        if step >= steps * (1 + _asked(received, "Go on")):
            return say("Done.")
        wanted = (
            tool("read", path=f"notes/note_{step % 200:03d}.txt"),
            tool("use_tool", name="memory", arguments={"operation": "store", "content": f"Note {step} is about rain"}),
            tool("use_tool", name="memory_search", arguments={"query": f"rain on day {step}"}),
        )[step % 3]
        return Reply(calls=(ScriptedCall(wanted.name, wanted.arguments, f"call_{step:06d}"),))

    folder = lab.folder / "gateway"
    folder.mkdir()
    with ScriptedServer(script, strict=True) as server:
        gateway = Gateway(folder, urlsplit(server.base_url).port or 0)
        shutil.copytree(lab.workspace / "notes", folder / "workspace" / "notes")

        def say_and_wait(session: str, text: str) -> None:
            gateway.say(session, text)
            while gateway.ask("GET", f"/api/sessions/{session}")["status"] != "done":
                time.sleep(0.1)

        earlier, session = (gateway.ask("POST", "/api/sessions", {})["session"] for _ in range(2))
        say_and_wait(earlier, "I always want the notes read by number")
        begun = len(server.chats)
        say_and_wait(session, "Read the notes")
        reflected = gateway.ask("POST", "/api/memory/reflect")
        say_and_wait(session, "Go on")
        requests = [canonical(one.body) for one in server.chats[begun:] if one.tool_names]
        results = [str(one["content"]) for one in server.chats[-1].messages if one["role"] == "tool"]
        gateway.process.terminate()
        gateway.process.wait(30)
    assert len(requests) == 2 * steps + 2, len(requests)
    assert any("is about rain" in text for text in results)
    assert any("Remembered as" in text for text in results)
    shares = [common_prefix(sooner, later) / len(sooner) for sooner, later in pairwise(requests)]
    return {
        "prefix_min": round(min(shares), 4),
        "prefix_requests": len(requests),
        "prefix_reflection_stored": len(reflected["stored"]),
        "strict_objections": len(server.objections),
    }


def _asked(received: Received, text: str) -> bool:
    return any(one["role"] == "user" and text in str(one["content"]) for one in received.messages)


def start(lab: Lab, count: int, runs: int) -> dict[str, Any]:
    """Spawn to first request in a folder with `count` memories and in an empty one, in turns."""
    notes = lab.workspace / ".lmagent" / "memory" / "notes"
    notes.mkdir(parents=True)
    for day in range(count // 1000):
        lines = (f"- Part {day}-{number} was built with compiler {number % 7} on a rainy day" for number in range(1000))
        (notes / f"{2020 + day // 28}-02-{day % 28 + 1:02d}.md").write_text("\n".join(lines) + "\n")
    (notes.parent / "MEMORY.md").write_text("- The notes are read by number\n")
    program = str(Path(sys.executable).with_name("lmagent"))
    server = lab.server("--steps", "0")
    search = [program, "memory", "search", "--json", "compiler 3 of part 7-500"]
    begun = time.monotonic()
    found = subprocess.run(
        search,
        cwd=lab.workspace,
        env=agent_env(lab.home, server.base_url),
        check=True,
        capture_output=True,
        timeout=600,
    )
    indexing = time.monotonic() - begun
    assert b"7-500" in found.stdout
    empty = Lab()
    with empty:
        other = empty.server("--steps", "0")
        for _ in range(2):
            lab.agent(server)
            empty.agent(other)
        pairs = [(lab.agent(server), empty.agent(other)) for _ in range(runs)]
    return {
        "memories": count,
        "indexing_s": round(indexing, 1),
        "start_ratio": round(statistics.median(a.start_ms / b.start_ms for a, b in pairs), 3),
        "start_cpu_ratio": round(statistics.median(a.cpu / b.cpu for a, b in pairs), 3),
    }


if __name__ == "__main__":
    sys.exit(main())
