"""Prompt bytes of the twelve small tasks (`chores.py`) with the same answers, against pi.

    npm install --prefix FOLDER --ignore-scripts @mariozechner/pi-coding-agent@0.73.1
    python bench/peer.py FOLDER/node_modules/.bin/pi

Both do each task against the same scripted mind; its calls are put into the peer's names for tools and arguments. Bytes
are those of the request bodies as they arrive, summed over all requests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from chores import CHORES, Chore, Step, Worker, work

from lmagent.testing import ScriptedServer

BAR = 1.2
OFFLINE = {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}


def as_pi(step: Step) -> Step:
    """The step as a call of pi's tools."""
    given = step.arguments
    match step.name:
        case "shell":
            return Step("bash", given, step.done)
        case "grep":
            return Step("bash", {"command": f"grep -rn {given['pattern']} ."}, step.done)
        case "edit":
            changes = [{"oldText": given["search"], "newText": given["replace"]}]
            return Step("edit", {"path": given["path"], "edits": changes}, f"replaced.*{re.escape(given['path'])}")
        case "write":
            return Step("write", given, f"wrote.*{re.escape(given['path'])}")
        case _:
            return step


def work_of_pi(program: Path, chore: Chore) -> dict[str, Any]:
    """One task done by pi."""
    steps = tuple(as_pi(step) for step in chore.steps)
    worker = Worker(Chore(chore.name, chore.task, chore.before, steps, chore.after, chore.answer), "none", at=0)
    with tempfile.TemporaryDirectory() as home, ScriptedServer(worker) as server:
        folder, settings = Path(home) / "workspace", Path(home) / ".pi" / "agent" / "models.json"
        folder.mkdir()
        settings.parent.mkdir(parents=True)
        for path, content in chore.before.items():
            (folder / path).write_text(content)
        model = {"id": "m", "name": "m", "contextWindow": 262144, "maxTokens": 8192}
        provider = {"baseUrl": server.base_url, "api": "openai-completions", "apiKey": "x", "models": [model]}
        settings.write_text(json.dumps({"providers": {"local": provider}}))
        subprocess.run(
            [program, "-p", "--provider", "local", "--model", "m", chore.task],
            env={"PATH": os.environ["PATH"], "HOME": home, **OFFLINE},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        right = all(
            not (folder / path).exists() if content is None else (folder / path).read_text() == content
            for path, content in chore.after.items()
        )
    return {"right": right, "bytes": worker.prompt_bytes, "requests": worker.requests}


def main() -> int:
    """Print the figures; exit 1 if the bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pi", type=Path, help="the program to compare with")
    program = parser.parse_args().pi.resolve()
    rows = {}
    for chore in CHORES:
        ours, theirs = work(chore, "none", at=0), work_of_pi(program, chore)
        rows[chore.name] = {"ours": ours, "pi": theirs}
    ours, theirs = (sum(row[name]["bytes"] for row in rows.values()) for name in ("ours", "pi"))
    done = all(row["ours"]["result"] == "done" and row["pi"]["right"] for row in rows.values())
    ok = done and ours <= BAR * theirs
    print(
        json.dumps({"ok": ok, "bar": BAR, "ratio": round(ours / theirs, 3), "ours": ours, "pi": theirs, "tasks": rows})
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
