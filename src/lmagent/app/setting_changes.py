"""Setting changes: the settings of a program that runs, and changes to the user's own file while it does.

What may be changed from the page is what a file of an untrusted folder may set too: keys, places, permission rules and
the sandbox are not among it, and what guards something can only be made stricter.
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

Changeable = Literal["any", "stricter", "no"]

KEPT = ("secret", "path", "rules", "url")
"""Kinds that are never changed from the page."""

LIVE = ("temperature", "sampling", "max_tokens", "keep_thinking", "limits")
"""Parts of the agent that sessions take over when they are opened."""


class SettingRow(Struct, frozen=True):
    """A setting.

    Attributes:
        name: its name in `config.toml`.
        value: as text; of a secret only whether it is set.
        origin: where the value comes from.
        layer: the same in one word of `config.layers`.
        default: the value that holds if nothing sets it.
        help: what it means.
        allowed: what it may be.
        kind: of its value.
        choices: of a choice.
        changeable: whether the page may change it, only to something stricter, or not.
        pending: it differs from what the program runs with, which takes it over when it starts anew.
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
    changeable: Changeable
    pending: bool
    yours: bool


class Changed(Struct, frozen=True):
    """What came of a change.

    Attributes:
        row: the setting as it is now.
        effect: when it takes effect: for sessions opened from now on, after a restart, or not while `hidden_by` wins.
        hidden_by: the place that wins over your `config.toml`.
    """

    row: SettingRow
    effect: Literal["sessions", "restart", "hidden"]
    hidden_by: str = ""


def changeable(field: Setting) -> Changeable:
    """Return whether the page may change a setting."""
    if field.kind in KEPT or field.folder not in ("free", "smaller", "stricter"):
        return "no"
    return "stricter" if field.folder == "stricter" else "any"


def setting_rows(host: Host) -> tuple[tuple[SettingRow, ...], Loaded]:
    """Return all settings as the files have them now, and where they were read.

    Raises:
        ConfigError: a file is damaged.
    """
    now = _config(host).read()
    return tuple(_row(host, field, now) for field in SETTINGS), now


def change_setting(host: Host, name: str, text: str | None) -> Changed:
    """Change a setting in the user's configuration; None takes it out of there.

    Raises:
        ConfigError: there is no such setting, it is not to be changed here, or the value is not allowed.
    """
    field, before = field_named(name), _config(host).read()
    how = changeable(field)
    if how == "no":
        fix = f"change it in {before.config_file}, then restart lmagent"
        raise ConfigError(f"{name} cannot be changed from the page: it guards what the agent may do or reach", fix=fix)
    value = None if text is None else value_of(field, text)
    after = field.default if text is None else value
    if how == "stricter" and _looser(field, getattr(host.settings, name), after):
        fix = f"change it in {before.config_file}, then restart lmagent"
        raise ConfigError(f"the page can make {name} stricter only", fix=fix)
    save_settings(before.config_file, {name: None if text is None else toml_of(value)})
    return _taken_over(host, field, _config(host).read())


def field_named(name: str) -> Setting:
    """Return a setting by its name.

    Raises:
        ConfigError: no setting has this name.
    """
    field = BY_NAME.get(name.lower())
    if field is None:
        from lmagent.config.names import closest

        meant = closest(name.lower(), BY_NAME)
        fix = f"did you mean {meant}?" if meant else "lmagent config lists them"
        raise ConfigError(f"there is no setting {name[:80]!r}", fix=fix)
    return field


def value_of(field: Setting, text: str) -> Any:
    """Return the value that a text means for a setting.

    Raises:
        ConfigError: it is not allowed.
    """
    try:
        return field.read(text, Path.cwd(), paths.home_dir(os.environ), text=True)
    except ValueError as error:
        raise ConfigError(f"{field.name} {error}", fix=f"{field.name}: {field.help}") from None


def _taken_over(host: Host, field: Setting, now: Loaded) -> Changed:
    """Let the host work with the new value as far as it can without starting anew."""
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
    """Whether sessions that are opened from now on take a change over."""
    before, after = (config.agent_of(replace(config.start.settings, **{field.name: value})) for value in (old, new))
    return field.name == "permission_mode" or any(getattr(before, part) != getattr(after, part) for part in LIVE)


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


def _looser(field: Setting, old: Any, new: Any) -> bool:
    """Whether a value asks or holds back less than another one."""
    if field.kind == "choice":
        return field.choices.index(new) < field.choices.index(old)
    return bool(new) and not old


def _config(host: Host) -> Configuration:
    assert host.config is not None
    return host.config
