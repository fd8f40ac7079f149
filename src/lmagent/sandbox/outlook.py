"""Predicts which sandbox commands will get, by two quick checks. The attack in `choose` decides."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio

from lmagent.sandbox.environment import find_program

QUICK = 5.0
"""Seconds that a program may take to answer."""


async def outlook(wanted: str, env: Mapping[str, str], workspace: Path, image: str) -> tuple[str, str]:
    """Return the sandbox that commands will probably get, or an empty name and a fix."""
    if wanted in ("off", "landlock"):
        return wanted, ""
    if wanted in ("auto", "bubblewrap") and sys.platform == "linux":
        if await _succeeds("bwrap", ("--ro-bind", "/", "/", "--unshare-all", "true"), env, workspace):
            return "bubblewrap", ""
    if wanted in ("auto", "docker") and await _succeeds("docker", ("image", "inspect", image), env, workspace):
        return "docker", ""
    if wanted == "auto" and sys.platform == "darwin":
        return "seatbelt", ""
    bare = wanted != "docker" and sys.platform == "linux" and find_program("bwrap", env, workspace) is None
    return "", "install bubblewrap" if bare else "type lmagent sandbox probe"


async def _succeeds(program: str, arguments: tuple[str, ...], env: Mapping[str, str], workspace: Path) -> bool:
    path = find_program(program, env, workspace)
    if path is None:
        return False
    with anyio.move_on_after(QUICK):
        try:
            asked = await anyio.run_process([path, *arguments], env=env, check=False, stdin=subprocess.DEVNULL)
        except OSError:
            return False
        return asked.returncode == 0
    return False


async def docker_answers(env: Mapping[str, str], workspace: Path) -> bool:
    """Return whether docker's engine answers; an installed client proves nothing."""
    return await _succeeds("docker", ("version", "--format", "{{.Server.Version}}"), env, workspace)
