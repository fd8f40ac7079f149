"""First run: nothing is configured yet, and a user sits at the terminal. Two questions, and an offer to save."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
from msgspec import Struct
from msgspec.structs import replace

from lmagent.app.options import HostOptions, load_settings
from lmagent.app.servers.found import answering, best_here, is_installed, running_server
from lmagent.config.files import save_env, write_private
from lmagent.config.installed import install_command
from lmagent.config.loader import Loaded
from lmagent.config.paths import expand_path
from lmagent.config.settings import DEFAULT_URL
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.modelserver.library.suggestions import recommended
from lmagent.modelserver.pool.machine import machine_memory
from lmagent.providers.concealed import shown
from lmagent.providers.discovery import FoundServer
from lmagent.providers.transport import listens
from lmagent.providers.urls import api_root, server_root

PATIENCE = 3.0  # seconds for a connection to the typed address


class Person(Struct, frozen=True):
    """The user at the terminal."""

    ask: Callable[[str, str], str]
    confirm: Callable[[str], bool]
    say: Callable[[str], None]
    download: Callable[[str], str]
    demo: Callable[[], None]


# A line of the menu, and a function that returns the resulting settings; None or empty asks again.
Offer = tuple[str, Callable[[], dict[str, str] | None]]


def is_first_run(options: HostOptions) -> bool:
    """Return whether nothing is configured: no file of the user or of the folder, no address, no model as a flag.

    A user who declined to save the answers is asked again only if no model is found without them. A folder's `.env` may
    belong to any program: it counts only if it names a model server.
    """
    loaded = load_settings(options)
    if loaded.settings.given_endpoint or options.replay or "llm_model" in options.flags:
        return False
    ours = [path for path in loaded.files if path == loaded.env_file or path.suffix == ".toml"]
    if ours or running_server(loaded.settings) is not None:
        return False
    if not _declined(loaded).exists():
        return True
    finds_a_model = anyio.run(answering) or (is_installed() and best_here(loaded.settings) is not None)
    return not finds_a_model


def _declined(loaded: Loaded) -> Path:
    return loaded.settings.agent_data_dir / "first-run-declined"


def first_run(options: HostOptions, person: Person) -> HostOptions:
    """Ask for the model server and the workspace, offer to save the answers, and return the options with them."""
    loaded = load_settings(options)
    person.say("Nothing is configured yet. Press Enter to accept the default in [brackets].")
    model = _ask_model(person, loaded)
    workspace, default = options.workspace, loaded.workspace.by in ("cwd", "fallback")
    if default:
        workspace = _ask_workspace(person, loaded)
    url = model.get("LLM_URL", "")
    answers = not url or listens(url, PATIENCE)
    if not answers:
        person.say(f"Nothing answers at {shown(url)}: it is used now, and not saved.")
    _offer_to_save(person, loaded, model if answers else {}, workspace if default else None)
    flags = {**options.flags, **{name.lower(): value for name, value in model.items()}}
    return replace(options, workspace=workspace, flags=flags)


def _ask_model(person: Person, loaded: Loaded) -> dict[str, str]:
    """Return the model server as `LLM_URL`, or a local model as `LLM_MODEL`."""
    while True:
        found = anyio.run(answering)
        if found:
            return {"LLM_URL": _ask_server(person, found)}
        person.say("No model server answers on the ports of LM Studio, Ollama, llama.cpp and vLLM.")
        offers = _offers(person, loaded)
        for number, (text, _) in enumerate(offers, 1):
            person.say(f"  {number}  {text}")
        chosen = person.ask("What to use", "1").strip()
        if not chosen.isdecimal() or not 1 <= int(chosen) <= len(offers):
            person.say(f"Type a number from 1 to {len(offers)}.")
            continue
        try:
            if answer := offers[int(chosen) - 1][1]():
                return answer
        except LmagentError as failure:
            person.say(str(failure))


def _offers(person: Person, loaded: Loaded) -> list[Offer]:
    look = ("Look again, when LM Studio, Ollama or another server has been started", lambda: None)
    address = ("Type the address of a model server", lambda: {"LLM_URL": _ask_server(person, [])})
    if not is_installed():
        person.say(f"To run models without another program, type: {install_command('local')}")
        return [look, address]

    offers: list[Offer] = []
    if (here := best_here(loaded.settings)) is not None:
        offers.append((f"Use {here.name}, which is on this machine already", lambda: {"LLM_MODEL": here.name}))
    if fitting := recommended(machine_memory().total):
        best = fitting[0]
        text = f"Download {best.name} ({best.download:.1f} GB) and run it here: {best.text}"
        offers.append((text, lambda: {"LLM_MODEL": person.download(best.name)}))
    return [*offers, ("Watch the demo, which needs no server and no network", person.demo), look, address]


def _ask_server(person: Person, found: list[FoundServer]) -> str:
    for server in found:
        models = ", ".join(server.models[:3]) or "no model loaded"
        person.say(f"  {server.name} answers at {server.base_url} ({models})")
    while True:
        url = person.ask("Model server", found[0].base_url if found else server_root(DEFAULT_URL))
        try:
            api_root(url)
            return url
        except ConfigError as wrong:
            person.say(str(wrong))


def _ask_workspace(person: Person, loaded: Loaded) -> Path:
    """Return the folder to work in. It exists, except for the default, which is created on opening."""
    default, home = loaded.workspace.path, loaded.workspace.home
    while True:
        named = person.ask("Folder to work in (the agent can change everything in it)", str(default))
        path = expand_path(named, Path.cwd(), home)
        if path.is_dir():
            return path
        if person.confirm(f"{path} does not exist. Make it?"):
            try:
                path.mkdir(parents=True)
                return path
            except OSError as error:
                person.say(f"{path} cannot be made: {error.strerror}")


def _offer_to_save(person: Person, loaded: Loaded, values: dict[str, str], workspace: Path | None) -> None:
    unnamed = (loaded.workspace.path, loaded.workspace.home)
    if workspace is not None and workspace.resolve() not in (*unnamed, Path(workspace.anchor)):
        values = {**values, "WORKSPACE": str(workspace)}  # an unnamed one would hold for a start in any folder
    if not values:
        return
    declined = _declined(loaded)
    try:
        if person.confirm(f"Save {' and '.join(values)} in {loaded.env_file}?"):
            save_env(loaded.env_file, values)
        else:
            write_private(declined, "")
            person.say(f"Not saved, and not asked again while a model is found. To be asked again: rm {declined}")
    except LmagentError as failure:
        person.say(f"It was not saved: {failure}")
