from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmagent.config.loader import Loaded, load


class Machine:
    """A home folder, a workspace, and whatever files a test puts there."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.cwd = root / "project"
        self.home.mkdir()
        self.cwd.mkdir()
        self.env: dict[str, str] = {"HOME": str(self.home), "USERPROFILE": str(self.home)}
        self.config_file = self.home / ".config" / "lmagent" / "config.toml"
        self.env["XDG_CONFIG_HOME"] = str(self.home / ".config")
        self.env["XDG_DATA_HOME"] = str(self.home / ".local" / "share")
        self.data = self.home / ".local" / "share" / "lmagent"

    def user_config(self, text: str) -> Path:
        return write(self.config_file, text)

    def user_env(self, text: str) -> Path:
        return write(self.config_file.with_name(".env"), text)

    def workspace_config(self, text: str) -> Path:
        return write(self.cwd / ".lmagent" / "config.toml", text)

    def workspace_env(self, text: str) -> Path:
        return write(self.cwd / ".env", text)

    def load(self, flags: Mapping[str, Any] | None = None, /, **env: str) -> Loaded:
        return load({**self.env, **env}, self.cwd, flags)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as nobody when the tests run as root, who may read and write everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
