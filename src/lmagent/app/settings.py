"""Settings: shown with their origins, changed in the user's own file, imported; and a folder trusted.

The page changes only settings that guard nothing. Keys, places, permissions, tools and the sandbox are changed in the
user's own file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lmagent.app.options import HostOptions, load_settings
from lmagent.config import paths
from lmagent.config.compat import ImportReport, import_file
from lmagent.config.files import save_env, save_settings, toml_of
from lmagent.config.layers import DEFAULT
from lmagent.config.loader import Loaded
from lmagent.config.names import closest
from lmagent.config.setting import Setting
from lmagent.config.settings import BY_NAME, SETTINGS
from lmagent.config.show import ShownSetting, rows, shown
from lmagent.config.trust import trust, untrust
from lmagent.config.workspace import open_workspace
from lmagent.core.errors import ConfigError
from lmagent.providers.concealed import shown as shown_url

if TYPE_CHECKING:
    from lmagent.app.host import Host


def show_settings(workspace: Path | None, *, origin: bool, as_json: bool) -> str:
    """Return the configuration as text: one line for each setting, with its origin on request."""
    loaded = load_settings(HostOptions(workspace))
    table = rows(loaded)
    if as_json:
        return msgspec.json.encode(table).decode()
    unused = [f"- {each.name} ({each.source}) is not used: {each.why}" for each in loaded.unused if origin]
    return "\n".join((*_lines(table, loaded, origin=origin), *unused))


def changed_settings(workspace: Path) -> str:
    """Return the settings that a layer sets, each with its origin, and where to change them."""
    loaded = load_settings(HostOptions(workspace))
    found = [row for row in rows(loaded) if row.origin != str(DEFAULT)]
    where = f"Your settings are in {loaded.config_file}; docs/configuration.md lists them all."
    return "\n".join((*_lines(found, loaded, origin=True), where))


def _lines(table: Sequence[ShownSetting], loaded: Loaded, *, origin: bool) -> list[str]:
    name_width = max((len(row.name) for row in table), default=0)
    value_width = min(60, max((len(row.value) for row in table), default=0)) if origin else 0
    lines = [f"{row.name:<{name_width}}  {row.value:<{value_width}}  {row.origin if origin else ''}" for row in table]
    return [line.rstrip() for line in lines] + [f"! {warned.text}\n  → {warned.fix}" for warned in loaded.warnings]


def save_theme(workspace: Path, theme: str) -> Path:
    file = load_settings(HostOptions(workspace)).config_file
    save_settings(file, {"theme": theme})
    return file


def set_setting(workspace: Path | None, name: str, text: str | None) -> str:
    """Change a setting in the user's configuration, or remove it (None); return the result as text."""
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
    open_workspace(loaded.workspace)
    return import_file(file, loaded)


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


# --- changes of a running program -------------------------------------------------------------------------------------

KEPT = ("secret", "path", "rules", "url")  # kinds that are never changed from the page

# Parts of the agent that sessions take over when they are opened.
LIVE = ("temperature", "sampling", "max_tokens", "keep_thinking", "limits")


class SettingRow(Struct, frozen=True):
    """A setting."""

    name: str
    value: str  # as text; of a secret only whether it is set
    origin: str
    layer: str
    default: str
    help: str
    allowed: str
    kind: str
    choices: tuple[str, ...]
    changeable: bool
    pending: bool  # it differs from the running program's value; a restart applies it
    yours: bool  # your own `config.toml` sets it, so that it can be reset


class Changed(Struct, frozen=True):
    """The result of a change.

    Attributes:
        effect: when it takes effect: for sessions opened from now on, after a restart, or not while `hidden_by` wins.
        hidden_by: the place that wins over your `config.toml`.
    """

    row: SettingRow
    effect: Literal["sessions", "restart", "hidden"]
    hidden_by: str = ""


def changeable(field: Setting) -> bool:
    return field.kind not in KEPT and field.folder in ("free", "smaller")


def setting_rows(host: Host) -> tuple[tuple[SettingRow, ...], Loaded]:
    """Return all settings with the files' present values, and the configuration. Raise ConfigError for a damaged
    file."""
    now = host.config.read()
    return tuple(_row(host, field, now) for field in SETTINGS), now


def change_setting(host: Host, name: str, text: str | None) -> Changed:
    """Change a setting in the user's configuration; None removes it."""
    field, before = field_named(name), host.config.read()
    if not changeable(field):
        fix = f"change it in {before.config_file}, then restart lmagent"
        raise ConfigError(f"{name} cannot be changed from the page: it guards what the agent may do or reach", fix=fix)
    save_settings(before.config_file, {name: None if text is None else toml_of(value_of(field, text))})
    now = host.config.read()
    row, value = _row(host, field, now), getattr(now.settings, field.name)
    if row.layer not in ("user config", "default"):
        return Changed(row, "hidden", row.origin)
    settings = replace(host.settings, **{field.name: value})
    made = host.config.agent_of(settings)
    agent = replace(host.agent, **{part: getattr(made, part) for part in LIVE})
    if agent == host.agent and settings != host.settings:
        return Changed(row, "restart")
    host.settings, host.agent = settings, agent
    return Changed(_row(host, field, now), "sessions")


def field_named(name: str) -> Setting:
    """Return a setting by its name. Raise ConfigError if no setting has this name."""
    field = BY_NAME.get(name.lower())
    if field is None:
        meant = closest(name.lower(), BY_NAME)
        fix = f"did you mean {meant}?" if meant else "lmagent config lists them"
        raise ConfigError(f"there is no setting {name[:80]!r}", fix=fix)
    return field


def value_of(field: Setting, text: str) -> Any:
    """Return the value of a setting from text. Raise ConfigError if it is not allowed."""
    try:
        return field.read(text, Path.cwd(), paths.home_dir(os.environ), text=True)
    except ValueError as error:
        raise ConfigError(f"{field.name} {error}", fix=f"{field.name}: {field.help}") from None


def _row(host: Host, field: Setting, now: Loaded) -> SettingRow:
    value, origin = getattr(now.settings, field.name), now.origins[field.name]
    running = (getattr(settings, field.name) for settings in (host.config.start.settings, host.settings))
    text = shown(field, value)
    return SettingRow(
        name=field.name,
        value=shown_url(text) if field.kind == "url" and value else text,
        origin=str(origin),
        layer=origin.layer,
        default=shown(field, field.default),
        help=field.help,
        allowed=field.allowed,
        kind=field.kind,
        choices=field.choices,
        changeable=changeable(field),
        pending=value not in running,
        yours=origin.layer == "user config",
    )
