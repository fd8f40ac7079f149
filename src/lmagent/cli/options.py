"""Options that several commands share, and the way from them to a host."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

CONFIG_JSON = "LMAGENT_CONFIG_JSON"

Function = TypeVar("Function", bound=Callable[..., Any])


WORKSPACE = "lmagent.workspace"
"""Key of click's `Context.meta` for the folder that `-w` names."""


def _remember_workspace(context: click.Context, option: click.Parameter, value: Path | None) -> Path | None:
    if value is not None:
        context.meta[WORKSPACE] = value
    return value


def workspace_option(function: Function) -> Function:
    """Add -w/--workspace, and --config, with which every command reads the settings."""
    config = click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_name_config,
        help="Also read a config.json of agent_computer.",
    )
    workspace = click.option(
        "-w",
        "--workspace",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        callback=_remember_workspace,
        help="Folder to work in; the default is $WORKSPACE, else the current folder.",
    )
    return workspace(config(function))


def _name_config(context: click.Context, _: click.Parameter, file: Path | None) -> None:
    if file is not None:
        before = os.environ.get(CONFIG_JSON)
        os.environ[CONFIG_JSON] = os.path.abspath(file)
        context.call_on_close(lambda: _restore(before))


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(CONFIG_JSON, None)
    else:
        os.environ[CONFIG_JSON] = before


def completed_by(name: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Complete a parameter by a function of `completing`, which is loaded when a shell asks."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
        from lmagent.cli import completing

        return getattr(completing, name)(context, parameter, incomplete)

    return complete


PICK = "?"
"""Value of `--resume` without an ID: the user picks the session from a list."""


def resume_option(function: Function) -> Function:
    for option in (
        click.option(
            "--resume",
            default="",
            is_flag=False,
            flag_value=PICK,
            metavar="[ID]",
            callback=_session_name,
            shell_complete=completed_by("session_ids"),
            help="Resume a session, by id or unique prefix; without one, pick from a list.",
        ),
        click.option("-c", "--continue", "latest", is_flag=True, help="Resume the newest session of this workspace."),
    ):
        function = option(function)
    return function


def _session_name(context: click.Context, option: click.Parameter, value: str) -> str:
    """Refuse an empty name: a script's variable that is empty must not start a new session."""
    from click.core import ParameterSource

    given = context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT
    if given and not value.strip():
        raise click.BadParameter("the name of the session is empty; lmagent sessions list shows the names")
    return value


def _together(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Join several options into one decorator; `--help` shows them in this order."""

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


sandbox_option = click.option(
    "--sandbox",
    type=click.Choice(["auto", "bubblewrap", "docker", "landlock", "off"]),
    metavar="KIND",
    help="Where commands run: auto, bubblewrap, docker, landlock, or off (unconfined).",
)
allow_host_option = click.option(
    "--allow-host", multiple=True, metavar="HOST:PORT", help="Let commands reach a host; may be given several times."
)


server_options = _together(
    click.option(
        "-m",
        "--model",
        metavar="NAME",
        shell_complete=completed_by("model_names"),
        help="Model to use; the default is the server's.",
    ),
    click.option("--base-url", metavar="URL", help="Model server, for example http://localhost:1234."),
)
"""-m/--model and --base-url."""

_turn_options = _together(
    click.option(
        "--permission",
        type=click.Choice(["auto", "normal", "manual"]),
        metavar="MODE",
        help="auto: never ask; normal: ask before changes; manual: ask before everything.",
    ),
    sandbox_option,
    allow_host_option,
    click.option(
        "--require-proof", is_flag=True, help="Changed files: run the project's check; not done before it passed."
    ),
    click.option("--max-iterations", type=click.IntRange(min=1), metavar="N", help="Model calls before a turn ends."),
    click.option("--no-mcp", is_flag=True, hidden=True),  # scripts of earlier agents give it; MCP does not exist here
    click.option("--no-sub-agents", is_flag=True, help="Offer no sub-agents."),
)

_log_options = _together(
    click.option("--debug", is_flag=True, help="Print each request to the model server by size and time."),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        metavar="LEVEL",
        help="What goes to .lmagent/logs/lmagent.log: debug, info, warning or error (default).",
    ),
)

_cassette_options = _together(
    click.option(
        "--record",
        type=click.Path(path_type=Path, dir_okay=False, writable=True),
        metavar="FILE",
        help="Store the model traffic in a cassette.",
    ),
    click.option(
        "--replay",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Play the model's side from a cassette, offline.",
    ),
)

model_options = _together(server_options, _turn_options, _log_options, _cassette_options)
"""Options of commands in which the agent works."""


def flags(**options: Any) -> dict[str, Any]:
    """Return the settings that options of the command line set; options that set none are passed over."""
    from lmagent.config.settings import SETTINGS

    found: dict[str, Any] = {}
    for setting in SETTINGS:
        value = options.get(setting.flag.removeprefix("--").replace("-", "_"))
        if value is True:
            found[setting.name] = not setting.flag.startswith("--no-")
        elif value is not None and value is not False and value != ():
            found[setting.name] = value
    return found
