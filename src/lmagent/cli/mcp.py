"""`lmagent mcp …`: the MCP servers whose tools the agent may use."""

from __future__ import annotations

import os
import shlex
import sys
import time
import webbrowser
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import click
from msgspec import to_builtins

from lmagent.app.commands import mcp as show
from lmagent.app.registry import Registry
from lmagent.app.wiring import open_registry
from lmagent.cli import shared
from lmagent.cli.mcpserve import serve
from lmagent.config.settings import Settings
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.mcp import oauth
from lmagent.mcp.config import load_servers, remove_server, user_file, workspace_file, write_server
from lmagent.mcp.spec import INSTALLERS, McpManifest, McpState, Needs, ServerSpec

T = TypeVar("T")

Scope = Literal["user", "workspace"]


class AddCommand(click.Command):
    """`add`, which explains how to write a command with options of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as unknown:
            text = f"there is no option {unknown.option_name}; options of the server's command follow --"
            raise click.UsageError(f"{text}:\n  lmagent mcp add NAME -- COMMAND {unknown.option_name} …") from None


@click.group(cls=shared.WorkspaceGroup, default="list")
@shared.group_workspace_option
def mcp() -> None:
    """Add, list, test and remove MCP servers, whose tools the agent may use; or serve its own tools.

    Yours are in mcp.json of your configuration folder, the workspace's in .lmagent/mcp.json; the latter run once you
    trust the folder.
    """


mcp.add_command(serve)


@mcp.command(cls=AddCommand)
@click.argument("name")
@click.argument("target", nargs=-1, required=True, type=click.UNPROCESSED, metavar="(URL | -- COMMAND ARGS…)")
@click.option("--scope", type=click.Choice(["user", "workspace"]), default="user", show_default=True)
@click.option("--env", multiple=True, metavar="K=V", help="A variable of the command; ${NAME} in V is yours.")
@click.option("--header", multiple=True, metavar="'K: V'", help="A header of each request to the URL.")
@click.option("--network", multiple=True, metavar="HOST:PORT|packages", help="It may reach this host.")
@click.option("--path", multiple=True, metavar="FOLDER[:rw]", help="It may read this folder; with :rw, also write.")
@click.option("--unconfined", is_flag=True, help="It runs without a sandbox, with all that you may do.")
def add(workspace: Path | None, name: str, target: tuple[str, ...], scope: Scope, **given: Any) -> int:
    """Add a server: its address, or after -- the command that starts it.

    It is started once, so that its tools are known, and what it may do is printed.
    """
    folder, registry = shared.workspace_folder(workspace), _registry(workspace)
    file = user_file() if scope == "user" else workspace_file(folder)
    spec = _spec(name, target, given)
    taken = next((each for each in load_servers(folder, registry.settings).specs if each.name == name), None)
    if taken is not None:
        fix = f"choose another name, or: lmagent mcp remove {shlex.quote(name)}"
        raise ConfigError(f"there is already a server {name!r}, in {taken.file}", fix=fix)
    write_server(file, spec)
    click.echo(f"added {name} to {file}")
    if spec.needs.network != given["network"]:
        click.echo(f'{target[0]} fetches packages, so it may reach their registries: "network": ["packages"]')
    if not registry.settings.enable_mcp:
        shared.say("  → MCP servers are switched off: lmagent config set enable_mcp true")
        return 0
    if scope == "workspace":
        shared.say("  → lmagent config trust: a workspace's servers run once you trust the folder and its files")
        return 0
    code = _tested(_registry(workspace), name)
    shared.say("  → a conversation or an `lmagent web` that runs already uses it from its next start on")
    return code


def _spec(name: str, target: tuple[str, ...], given: dict[str, Any]) -> ServerSpec:
    """Return the entry that the command line describes."""
    env, headers = _pairs("--env", given["env"], "="), _pairs("--header", given["header"], ":")
    network: tuple[str, ...] = given["network"]
    if not target[0].startswith(("http://", "https://")):
        if headers:
            raise ConfigError("--header is for addresses, and this server has a command", fix="use --env K=V")
        if Path(target[0]).name in INSTALLERS and not given["unconfined"] and "packages" not in network:
            network = (*network, "packages")
        return ServerSpec(name, target, env, needs=Needs(network, given["path"], given["unconfined"]))
    url, *more = target
    if more:
        raise ConfigError(f"nothing can follow an address, but {more[0]!r} does", fix=show.ADD)
    if env:
        raise ConfigError("--env is for commands, and this server has an address", fix="use --header 'K: V'")
    return ServerSpec(name, url=url, headers=headers, needs=Needs(network, given["path"], given["unconfined"]))


def _pairs(option: str, given: tuple[str, ...], sign: str) -> dict[str, str]:
    """Return the values of an option by their names."""
    found: dict[str, str] = {}
    for text in given:
        name, has_value, value = text.partition(sign)
        if not has_value or not name.strip():
            example = "--env KEY=VALUE" if sign == "=" else "--header 'Name: value'"
            raise ConfigError(f"{option} {text[:80]!r} has no {sign!r} after a name", fix=f"write {example}")
        found[name.strip()] = value.strip() if sign == ":" else value
    return found


@mcp.command("list")
@shared.json_option
def list_(workspace: Path | None, as_json: bool) -> None:
    """List the servers with their states and what they may do; none is started."""
    registry = _registry(workspace)
    if not as_json:
        shared.echo(show.overview(registry))
        return
    servers = registry.mcp
    for state in servers.states() if servers is not None else ():
        shared.print_json(_row(state, servers.manifest(state.spec.name) if servers else None))
    for line in show.problem_lines(registry):
        shared.say(f"lmagent: {line}")


def _row(state: McpState, manifest: McpManifest | None) -> dict[str, Any]:
    tools = [tool.name for tool in manifest.tools] if manifest else None
    return {**show.facts_of(state), "needs": to_builtins(state.spec.needs), "tools": tools}


@mcp.command()
@click.argument("name")
@shared.json_option
def test(workspace: Path | None, name: str, as_json: bool) -> int:
    """Connect to a server; print its tools, resources and prompts, what it may do and the time that it took."""
    return _tested(_registry(workspace), name, as_json=as_json)


def _tested(registry: Registry, name: str, *, as_json: bool = False) -> int:
    """Start a server, print what it offers, and return the exit code."""
    servers, state = show.find_server(registry, name)

    async def connect() -> tuple[float, McpManifest | None, str]:
        begin = time.monotonic()
        try:
            manifest, why = await servers.ready(name), ""
        except LmagentError as failure:
            manifest, why = None, str(failure)
        return time.monotonic() - begin, manifest, why

    shared.say(f"starting {name} …" if state.spec.command else f"connecting to {name} …")
    try:
        seconds, manifest, why = _run(registry, connect)
    finally:
        state = show.find_server(registry, name)[1]
    if as_json:
        row = {**_row(state, manifest), "seconds": round(seconds, 3), "error": why}
        shared.print_json({**row, "manifest": to_builtins(manifest)} if manifest else row)
    elif manifest is None:
        known = f"{name}: {state.reason}\n  → {state.fix}" if state.reason and state.fix else why
        shared.say(f"lmagent: {known}")
    else:
        shared.echo(*show.manifest_lines(manifest))
        shared.echo(f"{name} answered in {seconds:.1f} s with {show.offered(manifest)}; may do: {state.confinement}")
    return 0 if manifest is not None else 1


@mcp.command()
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Print new lines until Ctrl+C.")
def logs(workspace: Path | None, name: str, follow: bool) -> None:
    """Show what a server wrote to its log."""
    registry = _registry(workspace)
    servers, _ = show.find_server(registry, name)
    printed = servers.log(name, KEPT)
    shared.echo(*(show.log_lines(printed[-SHOWN:]) or [f"{name} has written nothing to its log"]))
    while follow:
        time.sleep(PAUSE)
        now = servers.log(name, KEPT)
        shared.echo(*show.log_lines(_new(printed, now)))
        printed = now


SHOWN = 200  # lines of a log that are printed at once
KEPT = 2_000  # lines that are compared to find the new ones
PAUSE = 0.5  # seconds between two looks at a log that is followed


def _new(printed: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines that follow the printed ones, of which the first may be gone from the log."""
    for gone in range(len(printed) + 1):
        left = printed[gone:]
        if now[: len(left)] == left:
            return now[len(left) :]
    return now


@mcp.command()
@click.argument("name")
def remove(workspace: Path | None, name: str) -> None:
    """Remove a server from the file that configures it."""
    folder = shared.workspace_folder(workspace)
    settings = shared.loaded_settings(workspace).settings
    configured = {spec.name: spec for spec in load_servers(folder, settings).specs}
    spec = configured.pop(name, None)
    own = (user_file(), workspace_file(folder))  # an entry that cannot be used has no spec
    file = next((each for each in (spec and spec.file, *own) if each and remove_server(each, name)), None)
    if file is None:
        fix = f"the configured servers are {', '.join(configured)}" if configured else show.ADD
        raise ConfigError(f"there is no MCP server {name[:80]!r}", fix=fix)
    click.echo(f"removed {name} from {file}")
    is_last = spec is not None and spec.url not in {each.url for each in configured.values()}
    if spec is not None and spec.url and is_last and anyio.run(oauth.logout, spec, settings.agent_data_dir, shared.say):
        click.echo("its login is forgotten")


@mcp.command()
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Print the address, or a code for another device.")
def login(workspace: Path | None, name: str, no_browser: bool) -> None:
    """Log in to a server that asks for it; the login is kept in your data folder, for you alone."""
    settings, spec = _address(workspace, name)
    opener = None if no_browser or not _has_browser() else webbrowser.open
    pasted = _typed_line if sys.stdin.isatty() else None
    anyio.run(oauth.login, spec, settings.agent_data_dir, shared.say, opener, pasted)
    click.echo(f"logged in to {name}")


@mcp.command()
@click.argument("name")
def logout(workspace: Path | None, name: str) -> None:
    """Forget the login to a server, and have its token revoked."""
    settings, spec = _address(workspace, name)
    was_kept = anyio.run(oauth.logout, spec, settings.agent_data_dir, shared.say)
    click.echo(f"logged out of {name}" if was_kept else f"no login to {name} was kept")


def _address(workspace: Path | None, name: str) -> tuple[Settings, ServerSpec]:
    """Return a configured server to which the user can log in. Raises ConfigError."""
    registry = _registry(workspace)
    return registry.settings, show.login_spec(registry, name)


def _has_browser() -> bool:
    """Return whether a browser can show a page on this screen."""
    if "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


async def _typed_line() -> str:
    await anyio.wait_readable(sys.stdin)
    return sys.stdin.readline()


# --- registry ---------------------------------------------------------------------------------------------------------


def _registry(workspace: Path | None) -> Registry:
    return open_registry(shared.loaded_settings(workspace))


def _run(registry: Registry, do: Callable[[], Awaitable[T]]) -> T:
    """Do something with the servers, and stop them."""

    async def main() -> T:
        try:
            return await do()
        finally:
            await registry.aclose()

    return anyio.run(main)
