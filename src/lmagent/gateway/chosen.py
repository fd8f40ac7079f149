"""Chosen: the model that was picked in the gateway, kept in the user's data folder, one a workspace.

What the configuration says stands until somebody picks another model, and again once it says something new: so the
record holds what it said at the time. A flag of the command line beats both.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.config.files import read_small, write_private
from lmagent.core.commands import SetModel
from lmagent.core.errors import ConfigError

FILE = "chosen.json"


class Choice(Struct, frozen=True):
    """A model that was picked.

    Attributes:
        model: its name.
        endpoint: the server that had it.
        over: what the configuration said then; empty for nothing.
    """

    model: str
    endpoint: str
    over: str = ""


def choose(host: Host, model: str) -> None:
    """Let new sessions begin with a model, now and after a restart.

    Raises:
        ConfigError: it cannot be kept; nothing was changed.
    """
    path = host.settings.agent_data_dir / FILE
    known = _read(host)
    known[str(host.workspace)] = Choice(model, host.settings.endpoint, host.settings.llm_model)
    write_private(path, msgspec.json.format(msgspec.json.encode(known)).decode())
    host.use_model(model)


def restore(host: Host) -> None:
    """Take up what was picked before, unless the command line, another server or a new setting says otherwise."""
    choice = _read(host).get(str(host.workspace))
    flagged = any(isinstance(wish, SetModel) for wish in host.wishes)
    settings = host.settings
    if choice is None or flagged or choice.endpoint != settings.endpoint or choice.over != settings.llm_model:
        return
    host.use_model(choice.model)


def _read(host: Host) -> dict[str, Choice]:
    """What was picked so far; nothing where the file is missing or damaged: it can be picked again."""
    try:
        content = read_small(host.settings.agent_data_dir / FILE)
        return msgspec.json.decode(content, type=dict[str, Choice]) if content else {}
    except (ConfigError, msgspec.DecodeError):
        return {}
