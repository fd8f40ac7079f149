"""Published servers, installed once into `.cache/` from the registries that npm and pip are configured with."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[2] / ".cache" / "mcp-servers"
EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
PYTHON = ("mcp-server-fetch==2026.10.24", "mcp-server-git==2026.10.19")


def everything() -> Path:
    """Return the script of npm's reference server."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm is not installed: the reference server of MCP is not tried")
    install = ("npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE / "npm"), EVERYTHING)
    return _installed("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js", [install])


def python_server(name: str) -> Path:
    """Return the program of a server of PyPI."""
    make = (sys.executable, "-m", "venv", str(CACHE / "python"))
    install = (str(CACHE / "python/bin/pip"), "install", "-q", *PYTHON)
    return _installed(f"python/bin/{name}", [make, install])


def _installed(name: str, commands: Sequence[Sequence[str]]) -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of several test processes installs
        for command in commands if not (CACHE / name).exists() else ():
            done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
            if done.returncode:
                pytest.skip(f"the registry cannot be reached, so {name} is not tried: {done.stderr[-300:]}")
    return CACHE / name
