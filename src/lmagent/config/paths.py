"""Paths: the user's own configuration and data, by platform and by the XDG base directory specification."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

APP = "lmagent"

_NAMES = (
    *("HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "APPDATA", "LOCALAPPDATA"),
    *("LMAGENT_CONFIG", "LMAGENT_CONFIG_JSON", "AGENT_DATA_DIR"),
)
"""Variables that move our own files."""


def home_dir(env: Mapping[str, str]) -> Path:
    named = env.get("USERPROFILE" if sys.platform == "win32" else "HOME", "")
    return Path(named) if named and Path(named).is_absolute() else Path(os.path.expanduser("~"))


def expand_path(text: str, base: Path, home: Path) -> Path:
    """Return a path: `~` is the home folder, a relative path counts from `base`, links are not resolved."""
    if text == "~" or text.startswith(("~/", "~\\")):
        return home / text[2:]
    return base / text


def config_dir(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the folder of the user's `config.toml` and `.env`."""
    return _base(env, platform, "XDG_CONFIG_HOME", ".config", "Library/Application Support", "APPDATA")


def config_file(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the user's `config.toml`; `LMAGENT_CONFIG` names another file."""
    named = env.get("LMAGENT_CONFIG", "")
    if not named:
        return config_dir(env, platform) / "config.toml"
    return home_dir(env) / named[2:] if named.startswith("~/") else Path(named).absolute()


def data_dir(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    """Return the platform's folder for data outside workspaces; the setting `agent_data_dir` takes precedence."""
    return _base(env, platform, "XDG_DATA_HOME", ".local/share", "Library/Application Support", "LOCALAPPDATA")


def _base(env: Mapping[str, str], platform: str, xdg: str, unix: str, mac: str, windows: str) -> Path:
    """Return our folder; an absolute XDG variable counts on every platform, a relative one is ignored, as specified."""
    chosen = env.get(xdg, "")
    if chosen and Path(chosen).is_absolute():
        return Path(chosen) / APP
    if platform == "win32" and env.get(windows):
        return Path(env[windows]) / APP
    home = home_dir(env)
    return home / (mac if platform == "darwin" else unix) / APP


def own_places(workspace: Path, env: Mapping[str, str]) -> tuple[Path, ...]:
    """Return our own folders and files in a workspace, as paths below it: the agent must not touch them.

    If the home folder is the workspace, it holds the user's configuration: a write to it may switch the sandbox off,
    and a read shows the keys. `workspace` is absolute, with links resolved.
    """
    return _places(str(workspace), tuple((name, env[name]) for name in _NAMES if name in env))


@lru_cache(maxsize=8)  # file tools ask at every call
def _places(workspace: str, named: tuple[tuple[str, str], ...]) -> tuple[Path, ...]:
    env = dict(named)
    folders = [config_dir(env), data_dir(env)]
    if env.get("AGENT_DATA_DIR"):
        folders.append(Path(env["AGENT_DATA_DIR"]).expanduser())
    if env.get("LMAGENT_CONFIG"):
        folders.append(config_file(env))
    if env.get("LMAGENT_CONFIG_JSON"):
        folders.append(Path(os.path.abspath(env["LMAGENT_CONFIG_JSON"])))
    # A parent folder may be a link: its spelled name may be in the workspace as well as its real one.
    spelled = {str(path) for path in folders} | {os.path.realpath(path) for path in folders}
    below = [os.path.relpath(path, workspace) for path in sorted(spelled) if path.startswith(f"{workspace}/")]
    return tuple(Path(path) for path in below)
