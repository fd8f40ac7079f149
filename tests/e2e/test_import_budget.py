"""What a run may load. A start that imports a web framework is a start that users wait for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

REPORT = """
import atexit, sys
def report():
    sys.stderr.write("LOADED " + " ".join(sorted({name.partition(".")[0] for name in sys.modules})))
atexit.register(report)
from lmagent.cli.main import main
main(sys.argv[1:])
"""

NEVER = {"httpx", "starlette", "mcp", "rich", "prompt_toolkit", "openai", "pydantic", "requests"}


def loaded(folder: Path, *arguments: str) -> set[str]:
    run = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments],
        env={**os.environ, "HOME": str(folder)},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(run.stderr.rpartition("LOADED ")[2].split())


def test_asking_for_the_version_loads_nothing_heavy(tmp_path):
    heavy = NEVER | {"httpcore", "anyio", "sqlite3", "jsonschema", "asyncio"}
    assert loaded(tmp_path, "--version") & heavy == set()


def test_a_one_shot_run_loads_no_terminal_library_no_server_and_no_database(tmp_path):
    with ScriptedServer([say("hello")]) as server:
        modules = loaded(tmp_path, "hi", "-w", str(tmp_path / ""), "--base-url", server.base_url, "--model", "m")
    assert modules & (NEVER | {"sqlite3", "jsonschema", "pathspec"}) == set()
    assert "httpcore" in modules
