"""Places: the files of servers in the user's data folder, which only the user can read.

mcp/logs/NAME-KEY.log              the output of a server in a workspace
mcp/manifests/NAME-KEY.json        what a server offered the last time
mcp/homes/KEY                      the home folder and /tmp that a sandboxed server keeps
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from lmagent.mcp.spec import ServerSpec


def log_file(data: Path, workspace: Path, name: str) -> Path:
    return data / "mcp" / "logs" / f"{_plain(name)}-{_digest(workspace, name)}.log"


def manifest_file(data: Path, workspace: Path, spec: ServerSpec) -> Path:
    """Return the file of a manifest; a spec that was changed has another one."""
    content = msgspec.json.encode((spec.command, spec.cwd, spec.url, spec.needs, sorted(spec.env))).decode()
    return data / "mcp" / "manifests" / f"{_plain(spec.name)}-{_digest(workspace, spec.name, content)}.json"


def homes(data: Path) -> Path:
    return data / "mcp" / "homes"


def home_name(workspace: Path, spec: ServerSpec) -> str:
    """Return the name of a server's home: one for all workspaces if the user's own file configures it."""
    return _digest(spec.file if spec.scope == "user" else workspace, spec.scope, spec.name)


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "_", name)[:40]


def _digest(*parts: object) -> str:
    import hashlib  # loads OpenSSL, and only configured servers need it

    text = "\0".join(map(str, parts))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
