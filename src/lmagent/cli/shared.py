"""Shared by the commands: options, groups, tables, JSON, and the way from options to a host."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from lmagent.core.errors import ungrouped

if TYPE_CHECKING:
    from lmagent.app.host import Host
    from lmagent.app.options import HostOptions
    from lmagent.config.loader import Loaded

CONFIG_JSON = "LMAGENT_CONFIG_JSON"

WORKSPACE = "lmagent.workspace"
"""Key of click's `Context.meta` for the folder that `-w` names."""

PICK = "?"
"""Value of `--resume` without an ID: the user picks the session from a list."""

Function = TypeVar("Function", bound=Callable[..., Any])
T = TypeVar("T")


# --- groups -----------------------------------------------------------------------------------------------------------


class CommandGroup(click.Group):
    """A group of commands; `default` is called when none is named, or empty for the help."""

    def __init__(self, *args: Any, default: str = "", **options: Any) -> None:
        options.setdefault("invoke_without_command", bool(default))
        super().__init__(*args, **options)
        self._default = default

    def invoke(self, ctx: click.Context) -> Any:
        result = super().invoke(ctx)
        command = self.get_command(ctx, self._default) if ctx.invoked_subcommand is None else None
        if command is None:
            return result
        with command.make_context(self._default, [], parent=ctx) as inner:
            return command.invoke(inner)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write whole summaries; click would cut them."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, item.get_short_help_str(1000)) for name, item in found if item is not None and not item.hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(f"{name} (default)" if name == self._default else name, text) for name, text in rows])


class WorkspaceGroup(CommandGroup):
    """A group whose commands get the folder that `-w` names as their first argument."""

    def command(self, *names: Any, **options: Any) -> Any:
        def add(function: Callable[..., Any]) -> click.Command:
            return super(WorkspaceGroup, self).command(*names, **options)(click.pass_obj(function))

        return add


# --- options ----------------------------------------------------------------------------------------------------------


def together(*options: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Join several options into one decorator; `--help` shows them in this order."""

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def completed_by(name: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Complete a parameter by a function of `completing`, which is loaded when a shell asks."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
        from lmagent.cli import completing

        return getattr(completing, name)(context, parameter, incomplete)

    return complete


def _name_config(_: click.Context, __: click.Parameter, file: Path | None) -> None:
    if file is not None:
        os.environ[CONFIG_JSON] = os.path.abspath(file)


def _remember_workspace(context: click.Context, _: click.Parameter, value: Path | None) -> Path | None:
    """Keep the folder for the commands of a group, and for the report of an unexpected error."""
    if value is not None:
        context.meta[WORKSPACE] = context.obj = value
    return value


def workspace_option(function: Function, *, expose: bool = True) -> Function:
    """Add -w/--workspace, and --config, with which every command reads the settings."""
    workspace = click.option(
        "-w",
        "--workspace",
        type=click.Path(path_type=Path),
        metavar="FOLDER",
        expose_value=expose,
        callback=_remember_workspace,
        help="Folder to work in; the default is $WORKSPACE, else the current folder.",
    )
    config = click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_name_config,
        help="Also read a config.json of agent_computer.",
    )
    return together(workspace, config)(function)


def group_workspace_option(function: Function) -> Function:
    """Add the same options to a `WorkspaceGroup`."""
    return workspace_option(function, expose=False)


def _session_name(context: click.Context, option: click.Parameter, value: str) -> str:
    """Refuse an empty name: a script's variable that is empty must not start a new session."""
    given = context.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT
    if given and not value.strip():
        raise click.BadParameter("the name of the session is empty; lmagent sessions list shows the names")
    return value


resume_option = together(
    click.option("-c", "--continue", "latest", is_flag=True, help="Resume the newest session of this workspace."),
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
)

session_argument = click.argument("session", shell_complete=completed_by("session_ids"))

json_option = click.option("--json", "as_json", is_flag=True, help="As JSON, one object a line.")
events_option = click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines.")

permission_option = click.option(
    "--permission",
    type=click.Choice(["auto", "normal", "manual"]),
    metavar="MODE",
    help="auto: never ask; normal: ask before changes; manual: ask before everything.",
)
sandbox_option = click.option(
    "--sandbox",
    type=click.Choice(["auto", "bubblewrap", "docker", "landlock", "off"]),
    metavar="KIND",
    help="Where commands run: auto, bubblewrap, docker, landlock, or off (unconfined).",
)
allow_host_option = click.option(
    "--allow-host",
    multiple=True,
    metavar="HOST:PORT",
    help="Let commands reach a host, or `packages`: PyPI, npm, Debian; may be given several times.",
)

server_options = together(
    click.option(
        "-m",
        "--model",
        metavar="NAME",
        shell_complete=completed_by("model_names"),
        help="Model to use; the default is the server's.",
    ),
    click.option("--base-url", metavar="URL", help="Model server, for example http://localhost:1234."),
)

model_options = together(
    server_options,
    permission_option,
    sandbox_option,
    allow_host_option,
    click.option(
        "--require-proof", is_flag=True, help="Changed files: run the project's check; not done before it passed."
    ),
    click.option("--agent", metavar="NAME", help="The agent of new sessions: one of .lmagent/agents/ or of your own."),
    click.option("--max-iterations", type=click.IntRange(min=1), metavar="N", help="Model calls before a turn ends."),
    click.option("--no-mcp", is_flag=True, help="Use no MCP servers."),
    click.option("--no-sub-agents", is_flag=True, help="Offer no sub-agents."),
    click.option(
        "--debug", is_flag=True, help="Print each request to the model server by size and time; with trace, whole."
    ),
    click.option(
        "--log-level",
        type=click.Choice(["trace", "debug", "info", "warn", "warning", "error"], case_sensitive=False),
        metavar="LEVEL",
        help="What goes to .lmagent/logs/lmagent.log: trace, debug, info, warn or error (default).",
    ),
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
"""Options of commands in which the agent works."""


# --- from options to settings and hosts -------------------------------------------------------------------------------


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


def host_options(workspace: Path | None, options: dict[str, Any], *, attended: bool = False) -> HostOptions:
    from lmagent.app.options import HostOptions

    record, replay, agent = options.get("record"), options.get("replay"), options.get("agent") or ""
    return HostOptions(workspace, flags(**options), record, replay, attended, agent=agent)


def loaded_settings(workspace: Path | None = None) -> Loaded:
    from lmagent.app.options import HostOptions, load_settings

    return load_settings(HostOptions(workspace))


def workspace_folder(workspace: Path | None) -> Path:
    """Return the folder that the commands of a workspace work in, after its checks."""
    from lmagent.config.workspace import open_workspace

    return open_workspace(loaded_settings(workspace).workspace).path


def with_host(options: HostOptions, do: Callable[[Host], Awaitable[T]]) -> T:
    """Do something with the sessions of a workspace."""
    import anyio

    from lmagent.app.wiring import open_host

    async def main() -> T:
        host = await open_host(options, say=say)
        try:
            with ungrouped():
                return await do(host)
        finally:
            await host.aclose()

    return anyio.run(main)


# --- output -----------------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print a line to standard error; it may quote files and servers."""
    from lmagent.tools.sanitize import printable

    click.echo(printable(text), err=True)


def echo(*lines: str) -> None:
    """Print lines; they may quote files and servers."""
    from lmagent.tools.sanitize import printable

    for line in lines:
        click.echo(printable(line))


def show(as_json: bool, values: Iterable[Any], lines: Iterable[str]) -> None:
    """Print the result of a command: as values for a program, or as lines for the user."""
    if as_json:
        print_json(*values)
    else:
        echo(*lines)


def show_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; on a terminal a wider row ends with an ellipsis."""
    from lmagent.tools.sanitize import one_line

    rows = [headings, *([one_line(cell, 1000) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        click.echo(line if len(line) <= room else f"{line[: room - 1]}…")


def amount(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 100_000_000 else f"{count / 1e6:.1f} MB"


def print_json(*values: Any) -> None:
    """Print each value as a line of JSON, escaping every character that a terminal would obey or that imitates another.

    Such characters occur only in its texts, and mean the same escaped.
    """
    import json  # slow, and few commands print it

    from lmagent.providers import jsontext

    for value in values:
        text = jsontext.dumps(value).decode()
        click.echo(text if text.isprintable() else json.dumps(json.loads(text), separators=(",", ":")))
