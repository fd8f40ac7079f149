"""Settings for the `config` command: shown with their origins, imported, and a folder trusted."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from lmagent.app.wiring import HostOptions, load_settings
from lmagent.config import paths
from lmagent.config.compat import ImportReport, Targets, import_file
from lmagent.config.files import save_env, save_settings, toml_of
from lmagent.config.layers import DEFAULT
from lmagent.config.show import rows, shown
from lmagent.config.trust import trust, untrust
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import ConfigError


def show_settings(workspace: Path | None, *, origin: bool, as_json: bool) -> str:
    """Return the configuration as text: one line for each setting, with its origin on request."""
    loaded = load_settings(HostOptions(workspace))
    table = rows(loaded)
    if as_json:
        return msgspec.json.encode(table).decode()
    name_width = max(len(row.name) for row in table)
    value_width = min(60, max(len(row.value) for row in table))
    lines = [
        f"{row.name:<{name_width}}  {row.value:<{value_width}}  {row.origin}"
        if origin
        else f"{row.name:<{name_width}}  {row.value}"
        for row in table
    ]
    lines += [f"! {warning.text}\n  → {warning.fix}" for warning in loaded.warnings]
    if origin:
        lines += [f"- {unused.name} ({unused.source}) is not used: {unused.why}" for unused in loaded.unused]
    return "\n".join(lines)


def changed_settings(workspace: Path) -> str:
    """Return the settings that a layer sets, each with its origin, and where to change them."""
    loaded = load_settings(HostOptions(workspace))
    found = [row for row in rows(loaded) if row.origin != str(DEFAULT)]
    name_width = max((len(row.name) for row in found), default=0)
    lines = [f"{row.name:<{name_width}}  {row.value}  ({row.origin})" for row in found]
    lines += [f"! {warning.text}\n  → {warning.fix}" for warning in loaded.warnings]
    return "\n".join((*lines, f"Your settings are in {loaded.config_file}; docs/configuration.md lists them all."))


def save_theme(workspace: Path, theme: str) -> Path:
    file = load_settings(HostOptions(workspace)).config_file
    save_settings(file, {"theme": theme})
    return file


def set_setting(workspace: Path | None, name: str, text: str | None) -> str:
    """Change a setting in the user's configuration, or remove it (None); return the result as text."""
    from lmagent.app.setting_changes import field_named, value_of

    field, loaded = field_named(name), load_settings(HostOptions(workspace))
    file = loaded.env_file if field.secret else loaded.config_file
    if not field.secret:
        save_settings(file, {field.name: None if text is None else toml_of(value_of(field, text))})
    elif text is None:
        raise ConfigError(f"{field.name} is kept in {file}", fix=f"delete the line {field.env} there")
    else:
        save_env(file, {field.env: value_of(field, text)})
    now = load_settings(HostOptions(workspace))
    origin = now.origins[field.name]
    done = f"{field.name} is {shown(field, getattr(now.settings, field.name))}"
    if str(origin.source) == str(file) or origin == DEFAULT:
        return f"{done} ({file})"
    return f"{done}: {file} is saved, and {origin} wins over it"


def import_settings(file: Path, workspace: Path | None) -> ImportReport:
    loaded = load_settings(HostOptions(workspace))
    workspace_path = open_workspace(loaded.workspace).path
    home = paths.home_dir(os.environ)
    return import_file(file, Targets(loaded.config_file, loaded.env_file, workspace_path, home))


def trust_workspace(workspace: Path | None) -> str:
    """Trust the folder with its present configuration files; return the result as text."""
    loaded = load_settings(HostOptions(workspace))
    path = open_workspace(loaded.workspace).path
    files = trust(loaded.settings.agent_data_dir, path)
    return f"trusted {path} ({', '.join(files) or 'it has no configuration files yet'})"


def untrust_workspace(workspace: Path | None) -> str:
    loaded = load_settings(HostOptions(workspace))
    path = loaded.workspace.path
    if untrust(loaded.settings.agent_data_dir, path):
        return f"no longer trusted: {path}; programs that run keep the settings that they began with"
    return f"{path} was not trusted"
