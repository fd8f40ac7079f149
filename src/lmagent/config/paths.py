"""Paths: where a user's own configuration and data lie, by platform and by the XDG base directory specification."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

APP = "lmagent"


def home_dir(env: Mapping[str, str]) -> Path:
    """The home folder."""
    named = env.get("USERPROFILE" if sys.platform == "win32" else "HOME", "")
    return Path(named) if named and Path(named).is_absolute() else Path(os.path.expanduser("~"))


def config_dir(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The folder of the user's `config.toml` and `.env`."""
    return _base(env, platform, "XDG_CONFIG_HOME", ".config", "Library/Application Support", "APPDATA")


def config_file(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The user's `config.toml`; `LMAGENT_CONFIG` names another."""
    named = env.get("LMAGENT_CONFIG", "")
    if not named:
        return config_dir(env, platform) / "config.toml"
    return home_dir(env) / named[2:] if named.startswith("~/") else Path(named).absolute()


def data_dir(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The platform's folder for data that belongs to no workspace; the setting `agent_data_dir` goes before it."""
    return _base(env, platform, "XDG_DATA_HOME", ".local/share", "Library/Application Support", "LOCALAPPDATA")


def cache_dir(env: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The folder of what can be fetched or computed again."""
    folder = _base(env, platform, "XDG_CACHE_HOME", ".cache", "Library/Caches", "LOCALAPPDATA")
    return folder / "cache" if platform == "win32" and not env.get("XDG_CACHE_HOME") else folder


def _base(env: Mapping[str, str], platform: str, xdg: str, unix: str, mac: str, windows: str) -> Path:
    """A set XDG variable counts on every platform; a relative one is ignored, as the specification asks."""
    chosen = env.get(xdg, "")
    if chosen and Path(chosen).is_absolute():
        return Path(chosen) / APP
    if platform == "win32" and env.get(windows):
        return Path(env[windows]) / APP
    home = home_dir(env)
    return home / (mac if platform == "darwin" else unix) / APP
