"""Chosen: the model that was picked in the page, saved per workspace in the user's data folder.

It holds until the user picks another one, or the configuration or command line names a different one than then. A
model that was chosen in a session later is kept there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from anyio import to_thread
from msgspec import Struct

from lmagent.app.host import Host
from lmagent.config.files import read_small, write_private
from lmagent.core.commands import SetModel
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError, ProviderError
from lmagent.core.events import ModelChanged, SessionCreated
from lmagent.engine.session import Session

FILE = "chosen.json"


class ChosenModel(Struct, frozen=True):
    """A picked model, its server, the model that the configuration named then, and whether existing sessions use it."""

    model: str
    endpoint: str
    over: str = ""
    at: float = 0.0
    moves: bool = False


def choose(host: Host, model: str, *, moves: bool) -> None:
    """Use a model for new sessions, now and after a restart; with `moves`, also for existing ones."""
    path = host.settings.agent_data_dir / FILE
    known = _read(host)
    now = host.clock.now()
    known[str(host.workspace)] = ChosenModel(model, host.settings.endpoint, host.settings.llm_model, now, moves)
    write_private(path, msgspec.json.format(msgspec.json.encode(known)).decode())
    _use(host, model)


def restore(host: Host, say: Callable[[str], None]) -> None:
    """Apply the saved choice, unless another server or model has been named since; `say` reports the model."""
    choice, settings = _read(host).get(str(host.workspace)), host.settings
    host.registry.openers.append(partial(_move_opened, host))
    if choice is None or choice.endpoint != settings.endpoint or choice.over != settings.llm_model:
        return
    try:
        host.served.at(choice.model)
    except ProviderError as error:
        say(f"The model {choice.model} was picked in the page and cannot be used: {error}")
        return
    _use(host, choice.model)
    say(f"The model is {choice.model}: it was picked in the page, where it can be changed")


async def move(host: Host) -> None:
    """Switch the open sessions to the chosen model."""
    for session in list(host.sessions.values()):
        await _move_opened(host, session)


async def _move_opened(host: Host, session: Session) -> None:
    choice, state = _read(host).get(str(host.workspace)), session.state
    # An obsolete choice is not the model of new sessions either.
    if choice is None or not choice.moves or choice.model != host.agent.model or state.work.parent is not None:
        return
    if state.model != choice.model and await to_thread.run_sync(_chosen_in, host, state.session) < choice.at:
        await session.send(SetModel(model=choice.model, by="selected"))


def _chosen_in(host: Host, session: str) -> float:
    """Return when the model was last chosen in the session itself."""
    events = host.store.read(session)
    return max((event.ts for event in events if isinstance(event, SessionCreated | ModelChanged)), default=0.0)


def _use(host: Host, model: str) -> None:
    host.use_model(model)
    # The command line's choice is older: reopened sessions keep their model.
    host.initial_commands = tuple(command for command in host.initial_commands if not isinstance(command, SetModel))


def _read(host: Host) -> dict[str, ChosenModel]:
    """Return the saved choices; none if the file is missing or damaged, for the user can pick again."""
    try:
        content = read_small(host.settings.agent_data_dir / FILE)
        return decode_json(content, dict[str, ChosenModel]) if content else {}
    except (ConfigError, msgspec.DecodeError):
        return {}
