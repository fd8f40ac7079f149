"""The environment of commands: almost no variable of this process is passed on, so that no key can leak."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

HOME = "/home/agent"
"""The home folder inside: empty at the beginning of every command."""

SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

ALLOWED = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "TZ")
"""Variables that are passed on if they are set."""

TOOLCHAINS = (
    *(".pyenv/versions", ".local/share/uv/python", ".local/share/uv/tools", ".rustup/toolchains", ".cargo/bin"),
    *(".nvm/versions", ".volta/tools", ".asdf/installs", ".local/share/mise/installs", ".sdkman/candidates", "go/bin"),
)
"""Folders under the home folder that hold installed programs and no secrets; they are readable inside."""

SYSTEM_TOOLCHAINS = ("/opt", "/nix/store", "/home/linuxbrew/.linuxbrew", "/snap")


def toolchains(home: Path, extra: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the folders outside /usr that are readable inside: those of version managers, and the user's additions."""
    usual = [*(home / name for name in TOOLCHAINS), *map(Path, SYSTEM_TOOLCHAINS)]
    return tuple(dict.fromkeys(path for path in (*usual, *extra) if path.is_absolute() and path.is_dir()))


def base_environment(env: Mapping[str, str], visible: Iterable[Path], *, home: str = HOME) -> dict[str, str]:
    """Return the environment of every command; entries of PATH in `visible` folders are kept, in their order."""
    roots = [str(path) for path in visible]
    kept = [
        entry
        for entry in env.get("PATH", "").split(os.pathsep)
        if entry not in SYSTEM_PATH and any(entry == root or entry.startswith(f"{root}/") for root in roots)
    ]
    passed = {name: env[name] for name in ALLOWED if env.get(name)}
    return {
        "LANG": "C.UTF-8",
        **passed,
        "PATH": ":".join((*kept, *SYSTEM_PATH)),
        "HOME": home,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "PYTHONUNBUFFERED": "1",
        "LMAGENT_SANDBOX": "1",
    }
