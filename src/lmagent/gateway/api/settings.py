"""Settings: their values and origins, and changes to the user's own configuration."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from anyio import to_thread
from msgspec import Meta, Struct

from lmagent.app.settings import Changed, SettingRow, change_setting, setting_rows
from lmagent.gateway.http.route import Call, Route


class SettingWarning(Struct, frozen=True):
    """A part of the files that was ignored, and how to fix that."""

    text: str
    fix: str = ""


class SettingList(Struct, frozen=True):
    """The settings in the current files.

    Attributes:
        settings: in the order of the documentation.
        config_file: the user's own file, where changes go.
        warnings: parts that were ignored or not understood.
    """

    settings: tuple[SettingRow, ...]
    config_file: str
    warnings: tuple[SettingWarning, ...]


class SettingChange(Struct, frozen=True):
    """A new value, as text; None removes the setting from the user's configuration."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    value: Annotated[str, Meta(max_length=10_000)] | None


async def list_settings(call: Call) -> SettingList:
    """Return all settings with their origins; of secrets only whether they are set."""
    rows, loaded = await to_thread.run_sync(setting_rows, call.gateway.host)
    warnings = tuple(SettingWarning(one.text, one.fix) for one in loaded.warnings)
    return SettingList(rows, str(loaded.config_file), warnings)


async def change(call: Call) -> Changed:
    """Change a setting; it is on disk before the answer, which says when it takes effect."""
    wanted: SettingChange = call.body
    return await to_thread.run_sync(partial(change_setting, call.gateway.host, wanted.name, wanted.value))


ROUTES = (
    Route("GET", "/api/settings", list_settings, "Settings with their origins", answer=SettingList),
    Route("POST", "/api/settings", change, "Change a setting of the user", body=SettingChange, answer=Changed),
)
