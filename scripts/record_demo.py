"""Record the cassette of examples/demo: the real program runs on its workspace against a scripted model server.

The script is written by hand, in the manner of a capable model: look around, read every Python file, write the
summary, say so. `lmagent --replay` plays the cassette back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lmagent.testing import ScriptedServer, call, calls, reply, say, tool
from lmagent.testing.script import Reply

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "examples" / "demo"
TASK = "Summarise all Python files in this workspace into SUMMARY.md"

SUMMARY = """\
# Summary

A to-do list kept in one text file, used as a library (`todo.Item`, `todo.Store`) or from the command line.

| file | what it does |
|---|---|
| `todo/__init__.py` | Public names of the package: `Item` and `Store`. |
| `todo/__main__.py` | The commands `add TEXT [--due DAY]`, `list` and `done NUMBER`; each ends by printing the list. |
| `todo/item.py` | `Item`: text, due day, done or not. Immutable; `finish()` gives a done copy, `is_late(today)`. |
| `todo/line.py` | An item as a line, `[x] 2026-01-31 buy milk`: `write`, `parse`, and `BadLineError`. |
| `todo/report.py` | `overview`: the numbered list, late things first and done things last, and a count. |
| `todo/store.py` | `Store`: loads the file, and saves by writing a second file and renaming it over the first. |

Imports go one way: `__main__` → `report`, `store` → `line` → `item`.

Two things to know: `done` with a number that does not exist ends in an `IndexError`, and two runs at once can lose an
entry, since each rewrites the whole file.
"""

ANSWER = (
    "I read the six Python files and wrote SUMMARY.md: a table with one line per file, how the modules depend on each "
    "other, and two weak spots (`done` with an unknown number, and two runs at the same time)."
)

SCRIPT: list[Reply] = [
    call("glob", pattern="**/*.py"),
    calls(
        tool("read", path="todo/__init__.py"),
        tool("read", path="todo/item.py"),
        tool("read", path="todo/line.py"),
        text="Six files; I start with the data and its text form.",
    ),
    calls(
        tool("read", path="todo/store.py"),
        tool("read", path="todo/report.py"),
        tool("read", path="todo/__main__.py"),
    ),
    reply(text="Now I know them all.", calls=[tool("write", path="SUMMARY.md", content=SUMMARY)]),
    say(ANSWER, chunk=12),
]


def main() -> int:
    """Record; returns the exit code of the run."""
    cassette = DEMO / "cassette.jsonl"
    cassette.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder, ScriptedServer(SCRIPT, strict=True) as server:
        workspace, home = Path(folder, "workspace"), Path(folder, "home")
        shutil.copytree(DEMO / "workspace", workspace, ignore=shutil.ignore_patterns("__pycache__"))
        home.mkdir()
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "LLM_URL": server.base_url, "LLM_MODEL": "demo-model"}
        command = [str(Path(sys.executable).with_name("lmagent")), TASK, "--permission", "auto"]
        command += ["--workspace", str(workspace), "--record", str(cassette)]
        code = subprocess.run(command, env=env, check=False, stdin=subprocess.DEVNULL).returncode
        if code or server.left or not (workspace / "SUMMARY.md").exists():
            print(f"the run did not go by the script: exit {code}, {server.left} replies left, {server.objections}")
            return code or 1
    print(f"recorded {len(SCRIPT)} replies into {cassette.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
