"""The model server as a person starts it: commands of a data folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


class Home:
    """A data folder of its own; no server is left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = folder / "server"
        keep = ("PATH", "LANG", "LD_LIBRARY_PATH")
        self.env = {name: os.environ[name] for name in keep if name in os.environ}
        self.env |= {"HOME": str(folder), "AGENT_DATA_DIR": str(folder)}

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lmagent", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=self.env | env, cwd=self.folder, timeout=90, check=False
        )

    def told(self, *arguments: str, **env: str) -> dict:
        done = self.run(*arguments, "--json", **env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "lmagent", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=self.env, cwd=self.folder)
