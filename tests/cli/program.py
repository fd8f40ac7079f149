"""The real program as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lmagent.config.paths import data_dir
from lmagent.config.trust import trust
from lmagent.testing import ScriptedServer


class Program:
    """Runs `lmagent` in a workspace with a home folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.home.mkdir()
        self.workspace.mkdir()
        (self.workspace / "a.txt").write_text("alpha\n")
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("LLM", "LM_", "XDG"))},
            "HOME": str(self.home),
            "LLM_RETRY_DELAY": "0",
            "NO_COLOR": "1",
        }

    def trust(self) -> None:
        """Have the user trust the workspace, so that its jobs run."""
        trust(data_dir(self.env), self.workspace)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "lmagent", *arguments]

    def run(
        self, *arguments: str, stdin: str | None = None, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(*arguments),
            env={**self.env, **(env or {})},
            cwd=cwd or self.workspace,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def task(self, server: ScriptedServer, *arguments: str, **more) -> subprocess.CompletedProcess[str]:
        """Run a one-shot against a server."""
        return self.run("-w", str(self.workspace), "--base-url", server.base_url, *arguments, **more)

    def events(self) -> list[dict]:
        """All recorded events, but for one that is being written."""
        logs = sorted(self.workspace.glob(".lmagent/sessions/*/events.jsonl"))
        return [json.loads(line) for log in logs for line in log.read_bytes().split(b"\n")[:-1]]


def clear(run: subprocess.CompletedProcess[str]) -> str:
    """The error text of a run that failed as it should: no traceback, and something to do next."""
    assert "Traceback" not in run.stderr, run.stderr
    return run.stderr
