"""Modes: permission modes, plan mode and models as the choices of an editor."""

from __future__ import annotations

from typing import cast

import anyio

from lmagent.acp.content import Object
from lmagent.app.host import Host
from lmagent.core.commands import Command, SetMode, SetModel, SetWork
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.core.events import PermissionMode
from lmagent.core.view import View

MODES = {
    "auto": ("Auto", "Never asks"),
    "normal": ("Normal", "Asks before changes"),
    "manual": ("Manual", "Asks before everything"),
    "plan": ("Plan", "Reads only, and proposes a plan first"),
}

SERVERS_CHOICE = "default"  # the value of the model that the server chooses

PATIENCE = 5.0  # seconds for the server's list of models


def current_mode(view: View) -> str:
    return "plan" if view.work == "plan" else view.mode


def mode_state(view: View) -> Object:
    return {"currentModeId": current_mode(view), "availableModes": _modes("id")}


def _modes(key: str) -> list[Object]:
    return [{key: mode, "name": name, "description": text} for mode, (name, text) in MODES.items()]


async def models_of(host: Host) -> tuple[str, ...]:
    """Return the models that the server lists; none if it does not answer in time."""
    try:
        with anyio.fail_after(PATIENCE):
            return await host.models()
    except (LmagentError, TimeoutError):
        return ()


def config_options(view: View, model: str, models: tuple[str, ...]) -> list[Object]:
    """Return the choices: the mode, and the model, `model` being the session's own."""
    known = tuple(dict.fromkeys((*((model,) if model else ()), *models)))
    named = [{"value": name, "name": name} for name in known]
    if not model:
        named.insert(0, {"value": SERVERS_CHOICE, "name": "The server's choice"})
    return [
        {"id": "mode", "name": "Mode", "category": "mode", "type": "select", "options": _modes("value")}
        | {"currentValue": current_mode(view)},
        {"id": "model", "name": "Model", "category": "model", "type": "select", "options": named}
        | {"currentValue": model or SERVERS_CHOICE},
    ]


def commands_for(view: View, option: str, value: str, models: tuple[str, ...]) -> list[Command]:
    """Return the commands that set an option to a value. Raise ConfigError if either does not exist."""
    if option == "model":
        if value == SERVERS_CHOICE or value == view.model:
            return []
        if value not in models:
            raise ConfigError(f"there is no model {value[:100]!r}", fix=f"one of {', '.join(models) or 'none'}")
        return [SetModel(model=value)]
    if option != "mode" or value not in MODES:
        raise ConfigError(f"there is no {option[:40]} {value[:40]!r}", fix=f"a mode is one of {', '.join(MODES)}")
    if value == "plan":
        return [] if view.work == "plan" else [SetWork(mode="plan")]
    leave: list[Command] = [SetWork(mode="normal")] if view.work == "plan" else []
    return [*leave, SetMode(mode=cast("PermissionMode", value))] if value != view.mode else leave
