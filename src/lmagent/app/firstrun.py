"""First run: nothing is configured yet, and a person sits at the terminal. Two questions and an offer to keep them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
from msgspec import Struct

from lmagent.app.reach import answering
from lmagent.app.wiring import HostOptions, load_settings
from lmagent.config.dotenv import save_env
from lmagent.config.loader import Loaded
from lmagent.config.settings import DEFAULT_URL
from lmagent.config.values import expand_path
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.providers.concealed import shown
from lmagent.providers.discovery import FoundServer
from lmagent.providers.transport import listens
from lmagent.providers.urls import api_root, server_root

PATIENCE = 3.0
"""Seconds that a connection to the address that was typed may take."""


class Person(Struct, frozen=True):
    """Who answers.

    Attributes:
        ask: a question and the answer that Enter gives; returns the answer.
        confirm: a question; returns whether it was answered with yes, which Enter is.
        say: shows a line.
    """

    ask: Callable[[str, str], str]
    confirm: Callable[[str], bool]
    say: Callable[[str], None]


def is_first_run(options: HostOptions) -> bool:
    """Whether nothing was ever configured here: no file, no variable, no flag, and no earlier conversation."""
    loaded = load_settings(options)
    configured = loaded.settings.given_endpoint or loaded.files or options.replay
    return not configured and loaded.workspace.by in ("cwd", "fallback") and not loaded.settings.agent_data_dir.exists()


def first_run(options: HostOptions, person: Person) -> HostOptions:
    """Ask for the model server and the workspace, and offer to keep the answers.

    Args:
        options: what the command line says; `is_first_run` holds for it.
        person: who answers.

    Returns:
        The options with the answers in them.
    """
    loaded = load_settings(options)
    person.say("Nothing is configured yet. Press Enter to accept the default in [brackets].")
    url = _ask_server(person, anyio.run(answering))
    workspace = _ask_workspace(person, loaded)
    answers = listens(url, PATIENCE)
    if not answers:
        person.say(f"Nothing answers at {shown(url)}: it is used now, and not saved.")
    _offer_to_save(person, loaded, {"LLM_URL": url} if answers else {}, workspace)
    return HostOptions(
        workspace, {**options.flags, "llm_url": url}, options.record, options.replay, attended=options.attended
    )


def _ask_server(person: Person, found: list[FoundServer]) -> str:
    for server in found:
        models = ", ".join(server.models[:3]) or "no model loaded"
        person.say(f"  {server.name} runs at {server.base_url} ({models})")
    if not found:
        person.say("No model server answers on the ports of LM Studio, Ollama, llama.cpp and vLLM.")
    while True:
        url = person.ask("Model server", found[0].base_url if found else server_root(DEFAULT_URL))
        try:
            api_root(url)
        except ConfigError as wrong:
            person.say(str(wrong))
        else:
            return url


def _ask_workspace(person: Person, loaded: Loaded) -> Path:
    """The folder to work in; it exists when it is returned, except for the default, which is made on opening."""
    default, home = loaded.workspace.path, loaded.workspace.home
    while True:
        named = person.ask("Folder to work in (the agent can change everything in it)", str(default))
        path = expand_path(named, Path.cwd(), home)
        if path.is_dir():
            return path
        if person.confirm(f"{path} does not exist. Make it?"):
            try:
                path.mkdir(parents=True)
            except OSError as error:
                person.say(f"{path} cannot be made: {error.strerror}")
            else:
                return path


def _offer_to_save(person: Person, loaded: Loaded, values: dict[str, str], workspace: Path) -> None:
    if workspace.resolve() not in (loaded.workspace.path, loaded.workspace.home, Path(workspace.anchor)):
        # Only a folder that was named: else every later start, wherever it is, would work in this one.
        values = {**values, "WORKSPACE": str(workspace)}
    if not values or not person.confirm(f"Save {' and '.join(values)} in {loaded.env_file}?"):
        return
    try:
        save_env(loaded.env_file, values)
    except LmagentError as failure:
        person.say(f"It was not saved: {failure}")
