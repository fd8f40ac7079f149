"""Re-prefilled tokens over 100 tool steps that go through compactions, counted by a server that keeps one prompt.

    python bench/compaction.py [--quick]

Every step reads another file, so every result is new. `ideal` is what no agent could avoid with these cuts: every
message and tool block once, and what each cut keeps read once more behind the fixed block, since its place has changed.
`once` compares with every message read once and no cut at all, which only an unlimited window could reach.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from lmagent.core import events as ev
from lmagent.engine.state import message_bytes
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, call, say

BAR = 1.10
WINDOWS = (16384, 32768, 65536)


def answer(steps: int):
    """A model that reads file after file, and summarises when it is asked to."""
    done = 0

    def reply(received: Received) -> Behaviour:
        nonlocal done
        if received.body.get("tool_choice") == "none":
            return say("So far all files were read in order. Go on with the next one. " * 8)
        done += 1
        return call("read", path=f"notes/{done:03d}.txt") if done <= steps else say("All files are read.")

    return reply


def play(window: int, steps: int) -> dict[str, Any]:
    """One session in a window of `window` tokens."""
    with tempfile.TemporaryDirectory() as folder, ScriptedServer(answer(steps), strict=True) as server:
        workspace = Path(folder)
        (workspace / "notes").mkdir()
        for number in range(1, steps + 1):
            text = "".join(f"note {number}, line {line}: {number * line % 9973}\n" for line in range(90))
            (workspace / "notes" / f"{number:03d}.txt").write_text(text)
        environment = {**os.environ, "HOME": folder, "LMAGENT_CONTEXT_WINDOW": str(window)}
        command = [sys.executable, "-m", "lmagent", "read all notes", "--permission", "auto", "-w", folder]
        run = subprocess.run(
            [*command, "--base-url", server.base_url],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        logs = list(workspace.glob(".lmagent/sessions/*/events.jsonl"))
        events = [ev.decode(line) for log in logs for line in log.read_bytes().splitlines()]
        cuts = [event for event in events if isinstance(event, ev.CompactionDone)]
        prefilled, fresh = server.prefix.prefilled, server.prefix.fresh
    kept = sum(sum(map(message_bytes, event.messages[1:])) // 4 for event in cuts)
    return {
        "window": window,
        "exit_code": run.returncode,
        "steps": sum(isinstance(event, ev.StepFinished) for event in events),
        "compactions": len(cuts),
        "prefilled": prefilled,
        "fresh": fresh,
        "kept_by_cuts": kept,
        "to_ideal": round(prefilled / (fresh + kept), 3),
        "to_once": round(prefilled / fresh, 3),
    }


def main() -> int:
    """Print the figures; exit 1 if the bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="40 steps instead of 100")
    steps = 40 if parser.parse_args().quick else 100
    runs = [play(window, steps) for window in WINDOWS]
    ok = all(run["exit_code"] == 0 and run["to_ideal"] <= BAR for run in runs)
    print(json.dumps({"ok": ok, "bar": BAR, "worst": max(run["to_ideal"] for run in runs), "runs": runs}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
