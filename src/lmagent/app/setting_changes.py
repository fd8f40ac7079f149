"""Setting changes: the settings of a running program, and changes to the user's own file meanwhile.

The page changes only settings that guard nothing. Keys, places, permissions, tools and the sandbox are changed in the
user's own file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from lmagent.config import paths
from lmagent.config.files import save_settings, toml_of
from lmagent.config.layers import Origin
from lmagent.config.setting import Setting
from lmagent.config.settings import BY_NAME, SETTINGS
from lmagent.config.show import shown
from lmagent.core.errors import ConfigError
from lmagent.providers.concealed import shown as shown_url

if TYPE_CHECKING:
    from lmagent.app.host import Host
    from lmagent.app.wiring import Configuration
    from lmagent.config.loader import Loaded

KEPT = ("secret", "path", "rules", "url")
"""Kinds that are never changed from the page."""

LIVE = ("temperature", "sampling", "max_tokens", "keep_thinking", "limits")
"""Parts of the agent that sessions take over when they are opened."""


class SettingRow(Struct, frozen=True):
    """A setting.

    Attributes:
        value: as text; of a secret only whether it is set.
        pending: it differs from the running program's value; a restart applies it.
        yours: your own `config.toml` sets it, so that it can be reset.
    """

    name: str
    value: str
    origin: str
    layer: str
    default: str
    help: str
    allowed: str
    kind: str
    choices: tuple[str, ...]
    changeable: bool
    pending: bool
    yours: bool


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
    now = _config(host).read()
    return tuple(_row(host, field, now) for field in SETTINGS), now


def change_setting(host: Host, name: str, text: str | None) -> Changed:
    """Change a setting in the user's configuration; None removes it."""
    field, before = field_named(name), _config(host).read()
    if not changeable(field):
        fix = f"change it in {before.config_file}, then restart lmagent"
        raise ConfigError(f"{name} cannot be changed from the page: it guards what the agent may do or reach", fix=fix)
    save_settings(before.config_file, {name: None if text is None else toml_of(value_of(field, text))})
    return _taken_over(host, field, _config(host).read())


def field_named(name: str) -> Setting:
    """Return a setting by its name. Raise ConfigError if no setting has this name."""
    field = BY_NAME.get(name.lower())
    if field is None:
        from lmagent.config.names import closest

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


def _taken_over(host: Host, field: Setting, now: Loaded) -> Changed:
    name, origin = field.name, now.origins[field.name]
    row = _row(host, field, now)
    if row.layer not in ("user config", "default"):
        return Changed(row, "hidden", str(origin))
    old, new = getattr(host.settings, name), getattr(now.settings, name)
    host.settings = replace(host.settings, **{name: new})
    lives = old == new or _lives(_config(host), field, old, new)
    if lives:
        made = _config(host).agent_of(host.settings)
        host.agent = replace(host.agent, **{part: getattr(made, part) for part in LIVE})
    return Changed(_row(host, field, now), "sessions" if lives else "restart")


def _lives(config: Configuration, field: Setting, old: Any, new: Any) -> bool:
    before, after = (config.agent_of(replace(config.start.settings, **{field.name: value})) for value in (old, new))
    return any(getattr(before, part) != getattr(after, part) for part in LIVE)


def _row(host: Host, field: Setting, now: Loaded) -> SettingRow:
    value, start = getattr(now.settings, field.name), _config(host).start
    origin: Origin = now.origins[field.name]
    text = shown(field, value)
    taken_over = value == getattr(host.settings, field.name) and _lives(
        _config(host), field, getattr(start.settings, field.name), value
    )
    changed = value != getattr(start.settings, field.name)
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
        pending=changed and not taken_over,
        yours=origin.layer == "user config",
    )


def _config(host: Host) -> Configuration:
    assert host.config is not None
    return host.config
