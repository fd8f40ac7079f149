"""Chosen: the model that was picked in the gateway, kept in the user's data folder, one a workspace.

It stands, across restarts, until somebody picks another one, or the configuration or the command line names another
one than they did when it was picked: the record holds what they said then.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.config.files import read_small, write_private
from lmagent.core.commands import SetModel
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError

FILE = "chosen.json"


class Choice(Struct, frozen=True):
    """A model that was picked.

    Attributes:
        model: its name.
        endpoint: the server that had it.
        over: what the configuration or the command line said then; empty for nothing.
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
    _use(host, model)


def restore(host: Host, say: Callable[[str], None]) -> None:
    """Take up what was picked before, unless another server or another model has been named since.

    Args:
        host: the sessions.
        say: shows a person which model it is, and why.
    """
    choice, settings = _read(host).get(str(host.workspace)), host.settings
    if choice is not None and choice.endpoint == settings.endpoint and choice.over == settings.llm_model:
        _use(host, choice.model)
        say(f"The model is {choice.model}: it was picked in the page, where it can be changed")


def _use(host: Host, model: str) -> None:
    host.use_model(model)
    # What the command line said is older: sessions that are opened again keep the model that they have.
    host.wishes = tuple(wish for wish in host.wishes if not isinstance(wish, SetModel))


def _read(host: Host) -> dict[str, Choice]:
    """What was picked so far; nothing where the file is missing or damaged: it can be picked again."""
    try:
        content = read_small(host.settings.agent_data_dir / FILE)
        return decode_json(content, dict[str, Choice]) if content else {}
    except (ConfigError, msgspec.DecodeError):
        return {}
