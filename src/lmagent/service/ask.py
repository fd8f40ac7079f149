"""Ask: one call of a system's own program; a missing or silent program is an exit code like any other."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

PATIENCE = 30.0
"""Seconds that a program may take."""

MISSING, SILENT = 127, 124
"""Exit codes, as a shell and timeout(1) give them."""


def ask(*command: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, MISSING, "", f"{command[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, SILENT, "", f"{command[0]} did not answer within {PATIENCE:g} s")


def said_by(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
