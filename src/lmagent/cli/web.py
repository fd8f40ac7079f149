"""`lmagent web`: the agent in a browser, for scripts and for other programs."""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
from msgspec import Struct

from lmagent import __version__
from lmagent.app.signals import ending
from lmagent.app.wiring import open_host
from lmagent.cli.shared import host_options, loaded_settings, model_options, say, workspace_option
from lmagent.core.errors import ConfigError
from lmagent.gateway.http.access import WEAK, Access
from lmagent.gateway.http.accessstore import access_store
from lmagent.gateway.http.connections import tls_of
from lmagent.gateway.http.guard import GuardRules
from lmagent.gateway.http.lan import addresses, names, qr_text
from lmagent.modelserver.http.listening import Signals, is_loopback, listen

if TYPE_CHECKING:
    import socket
    import ssl

    from lmagent.app.host import Host
    from lmagent.app.options import HostOptions
    from lmagent.config.settings import Settings
    from lmagent.gateway.gateway import Gateway
    from lmagent.gateway.http.route import Route

ANYWHERE = "0.0.0.0"

NAME = r"[A-Za-z0-9._-]+|[0-9A-Fa-f.]*(?::[0-9A-Fa-f.]*){2,}"
"""Values of `--name`: the part of `Host` before a port, or an IPv6 address without its brackets."""

SHORT, SAFE = 4, 6
"""Shortest PIN, and shortest PIN that a network may try."""


@click.command()
@click.argument("port", required=False, metavar="[PORT|token]")
@click.option("--port", "port_option", type=click.IntRange(0, 65535), help="The same as PORT; 0: a free one.")
@click.option("--bind", metavar="ADDRESS", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--lan", is_flag=True, help="Let the devices of your network in; shows address, QR code and PIN.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="Answer to this name too, such as a proxy's.")
@click.option("--cert", type=click.Path(dir_okay=False), help="Certificate chain for TLS (PEM).")
@click.option("--key", type=click.Path(dir_okay=False), help="Its private key (PEM).")
@click.option("--mcp-serve", is_flag=True, help="Offer the tools and the agent to other programs at /mcp (MCP).")
@click.option("--no-browser", is_flag=True, help="Open no browser.")
@workspace_option
@model_options
def web(port: str | None, port_option: int | None, workspace: Path | None, **given: Any) -> int:
    """Serve the agent to browsers and programs, on this machine or in your network.

    A browser logs in with the PIN that is printed, a program with the token that `lmagent web token` prints. Ctrl+C
    and SIGTERM end it; running turns resume when it is started again.
    """
    if port == "token":
        settings = loaded_settings(workspace).settings
        click.echo(Access(access_store(settings), token=settings.web_token).token)
        return 0
    own = {name: given.pop(name) for name in ("bind", "lan", "names", "no_browser")}
    serve_host(host_options(workspace, {**given, "port": _port(port, port_option)}, attended=True), own)
    return 0


def _port(argument: str | None, option: int | None) -> int | None:
    if argument is None:
        return option
    if not (argument.isdecimal() and len(argument) <= 5 and int(argument) <= 65535):
        raise click.BadParameter(
            f"{argument[:40]!r} is no port; lmagent web 7860 takes one, lmagent web token shows the token"
        )
    if option is not None and option != int(argument):
        raise click.UsageError(f"two ports are named: {argument} and {option}")
    return int(argument)


def serve_host(options: HostOptions, own: dict[str, Any]) -> None:
    """Serve a host until a signal ends it. `own`: bind, lan, names and no_browser, as the options of `web`."""
    from lmagent.gateway.api.models import restore
    from lmagent.gateway.http.app import TABLE, GatewayApp
    from lmagent.gateway.http.serving import serve

    async def main() -> None:
        host = await open_host(options, say=say)
        restore(host, say)
        try:
            front = _front(host.settings, own)
            with listen(front.bind, host.settings.web_port) as listener:
                gateway = _gateway(host)
                app = GatewayApp(gateway, front.access, front.rules, say=say, routes=(*TABLE, *_mcp_routes(gateway)))
                gc.freeze()
                gc.enable()
                _announce(front, listener, host, own)
                await serve(app, gateway, listener, tls=front.tls, started=signals.end)
        finally:
            await host.aclose()

    signals = Signals(ending())
    anyio.run(main)


def _gateway(host: Host) -> Gateway:
    """Return the gateway: with a cluster, one that leaves the work to the workers."""
    if host.settings.cluster_url:
        from lmagent.gateway.forwarding import ForwardingGateway  # loads the libraries of the extra

        return ForwardingGateway(host, say=say)
    from lmagent.gateway.gateway import Gateway

    return Gateway(host, say=say)


def _mcp_routes(gateway: Gateway) -> tuple[Route, ...]:
    if not gateway.host.settings.mcp_serve:
        return ()
    if gateway.forwarder is not None:
        text = "a gateway of a cluster does not serve MCP: a program's connection belongs to one worker"
        raise ConfigError(
            text, fix="leave --mcp-serve out; on a worker's machine, programs can start lmagent mcp serve"
        )
    from lmagent.cli.mcpweb import routes_of  # few users serve MCP

    return routes_of(gateway.runner)


class _Front(Struct, frozen=True):
    """How clients reach the gateway, and which of them may; `is_new`: programs have got no token before."""

    bind: str
    access: Access
    rules: GuardRules
    tls: ssl.SSLContext | None
    is_new: bool


def _front(settings: Settings, own: dict[str, Any]) -> _Front:
    bind = _bind_of(settings.web_host, own["bind"], lan=own["lan"])
    local = is_loopback(bind)
    if not local and 0 < len(settings.web_token) < WEAK:
        text = f"AGENT_TOKEN has fewer than {WEAK} characters, and the whole network could try it"
        raise ConfigError(text, fix="choose a longer one, or none: then one is made (lmagent web token)")
    if 0 < len(settings.web_pin) < (SHORT if local else SAFE):
        text = f"AGENT_PIN has {len(settings.web_pin)} characters: it would soon be guessed"
        raise ConfigError(text, fix=f"{SAFE} or more, or none: then six digits are made")
    if odd := next((name for name in own["names"] if not re.fullmatch(NAME, name)), ""):
        text = f"--name {odd[:80]!r} is no name of a host"
        raise ConfigError(text, fix="give the name alone, without https:// and port: --name agent.example")
    if settings.web_key and not settings.web_cert:
        raise ConfigError("there is a key for TLS and no certificate", fix="name it with AGENT_CERT or --cert")
    key = Path(settings.web_key).expanduser() if settings.web_key else None
    tls = tls_of(Path(settings.web_cert).expanduser(), key) if settings.web_cert else None
    access = Access(access_store(settings), settings.web_pin, settings.web_token, secure=tls is not None)
    # The log of a container belongs to the user who starts it; on this machine `lmagent web token` shows the token.
    is_new = not local and access.is_new
    rules = GuardRules(local, (*own["names"], *(() if local else (*names(), bind))))
    return _Front(bind, access, rules, tls, is_new)


def _bind_of(host: str, bind: str | None, *, lan: bool) -> str:
    """Return the address to listen on: one that others can reach only if the options ask for it."""
    if bind:
        return bind
    if lan:
        return ANYWHERE if is_loopback(host) else host
    if not is_loopback(host):
        click.echo(f"AGENT_HOST={host} is taken with --lan only: listening on this machine alone", err=True)
        return "127.0.0.1"
    return host


def _announce(front: _Front, listener: socket.socket, host: Host, own: dict[str, Any]) -> None:
    """Print the address; on a desktop, open it."""
    port = int(listener.getsockname()[1])
    scheme = "https" if front.tls else "http"
    wild = front.bind in (ANYWHERE, "::")
    name = "127.0.0.1" if wild else front.bind
    here = f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}"
    agent = f"the agent {host.named.title or host.named.name} in " if host.named is not None else ""
    click.echo(f"lmagent {__version__} serves {agent}{host.workspace}\n  {here}")
    if own["lan"] or wild:
        others = [f"{scheme}://{address}:{port}" for address in addresses()]
        for other in others:
            click.echo(f"  {other}")
        if others and own["lan"]:
            click.echo(qr_text(others[0]))
        if front.tls is None:
            click.echo("  without TLS, whoever listens on this network can read along")
    if host.named is not None:
        click.echo(f"  OpenAI's API: {here}/v1, model agent/{host.named.name}; lmagent web token prints its key")
    if front.is_new:
        click.echo(f"  token of programs, printed this once: {front.access.token}")
    click.echo(f"  PIN {front.access.pin}")
    if not own["no_browser"] and _has_desktop():
        link = f"{here}/open/{front.access.link()}"
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()  # some do not return at once


def _has_desktop() -> bool:
    """Whether a user is likely to look at this machine's screen."""
    if not (sys.stdout.isatty() and sys.stdin.isatty()) or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
