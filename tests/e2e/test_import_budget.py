"""What a run may load, and when. A start that imports what it does not need is a start that users wait for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

REPORT = """
import atexit, os, signal, sys
def report(*_):
    place = os.environ["LOADED"]
    with open(place + ".part", "w") as file:
        file.write(" ".join(sorted(sys.modules)))
    os.replace(place + ".part", place)
if os.environ.get("WHEN") == "asked":
    with open(os.environ["LOADED"] + ".pid", "w") as file:
        file.write(str(os.getpid()))
    signal.signal(signal.SIGUSR1, report)
else:
    atexit.register(report)
from lmagent.cli.main import main
main(sys.argv[1:])
"""

NEVER = {
    *("httpx", "starlette", "rich", "prompt_toolkit", "openai", "pydantic", "requests"),
    *("mcp", "mcp_types", "httpx2", "acp"),
    *("duckdb", "arro3", "python_calamine", "vl_convert"),
}

LATER = {
    # what only a person types, or decides at a terminal
    *("lmagent.app.commands",),
    *("lmagent.app.slash", "lmagent.app.subagents.nested", "lmagent.core.view", "lmagent.engine.context.aside"),
    *("lmagent.headless.asker", "lmagent.headless.schema", "lmagent.terminal"),
    # what reads a reply: it is loaded while the server works on one
    *("lmagent.providers.assemble", "lmagent.providers.constrain", "lmagent.providers.failures"),
    *("lmagent.providers.formats", "lmagent.providers.sse", "lmagent.providers.textcalls"),
    "lmagent.engine.endings",
    *("lmagent.hooks", "lmagent.engine.hooks"),
    # what some turns need
    *("lmagent.engine.context.compaction", "lmagent.proof.verdict", "lmagent.engine.worktext"),
    *("lmagent.tools.git.calls", "lmagent.tools.vision"),
    *("lmagent.data.worker", "lmagent.data.text", "lmagent.data.inside"),
    *("dotenv", "tomlkit", "lmagent.config.compat", "lmagent.store.fork", "lmagent.store.follow"),
    # slow ones of the standard library
    *("json", "hashlib", "hmac", "secrets", "difflib", "sqlite3", "importlib.metadata"),
}
"""Modules that the first request does not wait for."""

OF_FEATURES = {
    *("lmagent.data", "lmagent.data.feature"),
    *("lmagent.agents", "lmagent.agents.feature"),
    *("lmagent.planning", "lmagent.planning.feature", "lmagent.planning.notes", "lmagent.planning.proposing"),
    "lmagent.planning.tools",
    *("lmagent.web", "lmagent.web.tools"),
    *("lmagent.proof", "lmagent.proof.feature"),
    *("lmagent.sandbox", "lmagent.sandbox.environment"),  # what commands find is told before the first of them
}
"""All that features may load before they are used: names, schemas, and when to load the rest."""

FEATURES = (
    "agents",
    "planning",
    "proof",
    "schedule",
    "modelserver",
    "repl",
    "gateway",
    "service",
    "sandbox",
    "undo",
    "dispatch",
    "web",
)
"""Packages that bring features."""

MOST = 160
"""Modules of our own before the first request. Each costs 0.1 ms to find and read, and what it does on top."""


def report(folder: Path, *arguments: str, **env: str) -> None:
    """Run the program, which writes down what it has loaded."""
    run = subprocess.run(
        [sys.executable, "-c", REPORT, *arguments],
        env={**os.environ, "HOME": str(folder), **env},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def loaded(folder: Path, *arguments: str) -> set[str]:
    """The top-level modules at the end of a run."""
    place = folder / "loaded.txt"
    report(folder, *arguments, LOADED=str(place))
    return {name.partition(".")[0] for name in place.read_text().split()}


def loaded_before_the_first_request(folder: Path) -> set[str]:
    """All modules, as the server finds them when the first request has come."""
    place = folder / "loaded.txt"

    def answer(_: object):
        if not place.exists():
            os.kill(int((folder / "loaded.txt.pid").read_text()), signal.SIGUSR1)
            until = time.monotonic() + 30
            while not place.exists() and time.monotonic() < until:
                time.sleep(0.01)
        return say("hello")

    with ScriptedServer(answer) as server:
        report(folder, "say hi", "--base-url", server.base_url, "--model", "m", LOADED=str(place), WHEN="asked")
    return set(place.read_text().split())


def test_asking_for_the_version_loads_nothing_heavy(tmp_path):
    heavy = NEVER | {"httpcore", "anyio", "sqlite3", "jsonschema", "asyncio"}
    assert loaded(tmp_path, "--version") & heavy == set()


def test_a_one_shot_run_loads_no_terminal_library_no_server_and_no_database(tmp_path):
    with ScriptedServer([say("hello")]) as server:
        modules = loaded(tmp_path, "hi", "-w", str(tmp_path / ""), "--base-url", server.base_url, "--model", "m")
    assert modules & (NEVER | {"sqlite3", "jsonschema", "pathspec"}) == set()
    assert "httpcore" in modules


def test_servers_that_are_configured_and_switched_off_load_nothing_of_the_protocol(tmp_path):
    (tmp_path / ".lmagent").mkdir()
    (tmp_path / ".lmagent" / "mcp.json").write_text('{"mcpServers": {"a": {"command": "true"}}}')
    with ScriptedServer([say("hello")]) as server:
        where = ("-w", str(tmp_path), "--base-url", server.base_url, "--model", "m")
        assert loaded(tmp_path, "hi", "--no-mcp", *where) & NEVER == set()


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="asks by a signal of Unix")
def test_the_first_request_waits_for_nothing_that_only_later_work_needs(tmp_path):
    modules = loaded_before_the_first_request(tmp_path)
    assert "httpcore" in modules
    assert modules & LATER == set()
    features = {name for name in modules if name.startswith(tuple(f"lmagent.{package}" for package in FEATURES))}
    assert features <= OF_FEATURES, "a feature is registered with a name, a schema and a late import"
    ours = sorted(name for name in modules if name.startswith("lmagent"))
    assert len(ours) <= MOST, f"{len(ours)} modules; load the new ones where they are first used: {ours}"
