"""Show: settings as lines of text, without secrets."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lmagent.config.loader import Loaded
from lmagent.config.setting import Setting
from lmagent.config.settings import PLACEHOLDER_KEYS, SETTINGS


class ShownSetting(Struct, frozen=True):
    """One line of `lmagent config`; the value is text without secrets."""

    name: str
    value: str
    origin: str


def rows(loaded: Loaded) -> tuple[ShownSetting, ...]:
    """Return all settings; a list of rules has one row per rule, each with its own origin."""
    found: list[ShownSetting] = []
    for setting in SETTINGS:
        value = getattr(loaded.settings, setting.name)
        if setting.kind == "rules" and value:
            origins = loaded.item_origins[setting.name]
            found += [
                ShownSetting(setting.name, rule, str(origin)) for rule, origin in zip(value, origins, strict=True)
            ]
        else:
            found.append(ShownSetting(setting.name, shown(setting, value), str(loaded.origins[setting.name])))
    return tuple(found)


def shown(setting: Setting, value: Any) -> str:
    """Return a value as text; of a secret only its length."""
    if setting.secret:
        return (value or "(none)") if value in PLACEHOLDER_KEYS else f"(set, {len(value)} characters)"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return ", ".join(str(item) for item in value) or "(none)"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return f"{value:g}" if isinstance(value, float) else str(value) or "(none)"
