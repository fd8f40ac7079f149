"""`lmagent server …`: the model server, and `lmagent daemon …`, its older name."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import click

from lmagent.cli.groups import CommandGroup

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def server_folder() -> Path:
    from lmagent.app.wiring import HostOptions, load_settings

    return load_settings(HostOptions(None)).settings.agent_data_dir / "server"


def size_text(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


def echo_json(value: Any) -> None:
    """Print one line of JSON, escaping every character that a terminal would obey or that imitates another one.

    JSON itself escapes only characters below U+0020. Other unprintable characters occur only in its texts, and mean the
    same
    escaped.
    """
    from lmagent.providers import jsontext

    text = jsontext.dumps(value).decode()
    click.echo(text if text.isprintable() else "".join(map(_printed, text)))


def _printed(letter: str) -> str:
    if letter.isprintable():
        return letter
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _bytes(context: click.Context, option: click.Parameter, value: str | None) -> int:
    if not value:
        return 0
    if not (found := _SIZE.fullmatch(value.strip())):
        raise click.BadParameter(f"{value!r} is no amount of memory; for example 12GB")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def _origin(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for origin in value:
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s*]+/?", origin, re.IGNORECASE):
            raise click.BadParameter(f"{origin!r} is no origin; for example https://chat.example:8080")
    return value


@click.group(cls=CommandGroup)
def server() -> None:
    """Run models on this machine, behind OpenAI's API."""


@server.command()
@click.option("--port", type=click.IntRange(0, 65535), default=1234, show_default=True, help="TCP port; 0: a free one.")
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on; others need an API key.")
@click.option("--cors", is_flag=True, help="Let the pages of all web sites use the server.")
@click.option("--cors-origin", multiple=True, metavar="URL", callback=_origin, help="Let the pages of one site use it.")
@click.option("--api-key", envvar="LMAGENT_SERVER_KEY", default="", help="Key that every request needs.")
@click.option("--models-dir", type=click.Path(path_type=Path, file_okay=False), help="Folder of the models.")
@click.option("--memory", callback=_bytes, metavar="SIZE", help="Memory for all models, for example 12GB.")
@click.option("--ttl", type=click.FloatRange(min=0), help="Seconds without a request until a model is unloaded.")
@click.option("--foreground/--detach", default=False, help="Stay in the terminal, or go to the background (default).")
@click.option("--json", "as_json", is_flag=True, help="Print where it listens as JSON.")
def start(as_json: bool, foreground: bool, **given: Any) -> int:
    """Start the server."""
    from lmagent.modelserver.daemon import KEY_VARIABLE, start_detached, state_of
    from lmagent.modelserver.listening import ServerError

    folder = server_folder()
    if foreground:
        return _run(folder, as_json=as_json, **given)
    if (state := state_of(folder)) is not None:
        fix = "lmagent server stop ends it"
        raise ServerError(f"the model server runs already at {state.url} (process {state.owner.pid})", fix=fix)
    arguments = ["--port", str(given["port"]), "--bind", given["bind"]]
    arguments += ["--cors"] if given["cors"] else []
    for origin in given["cors_origin"]:
        arguments += ["--cors-origin", origin]
    arguments += ["--memory", str(given["memory"])] if given["memory"] else []
    arguments += ["--ttl", str(given["ttl"])] if given["ttl"] is not None else []
    if given["models_dir"]:
        arguments += ["--models-dir", str(given["models_dir"].absolute())]
    env = {
        **os.environ,
        "AGENT_DATA_DIR": str(folder.parent),
    }  # it starts in no workspace, whose .env might choose another value
    if given["api_key"]:
        env[KEY_VARIABLE] = given["api_key"]
    state = start_detached(folder, arguments, env)
    _say_where(state, folder, as_json=as_json)
    return 0


def _run(folder: Path, *, as_json: bool, **given: Any) -> int:
    import gc

    import anyio

    from lmagent import __version__
    from lmagent.app.clock import SystemClock
    from lmagent.app.logs import log_to
    from lmagent.app.wiring import HostOptions, load_settings
    from lmagent.modelserver import daemon
    from lmagent.modelserver.errors import LOG_FILE
    from lmagent.modelserver.listening import Signals, listen
    from lmagent.modelserver.opening import open_server
    from lmagent.modelserver.serving import ServerSettings, serve

    gc.enable()
    with daemon.holding(folder):
        log_to(folder / LOG_FILE, load_settings(HostOptions(None)).settings)
        key, made = daemon.key_for(folder, given["bind"], given["api_key"])
        listener = listen(given["bind"], given["port"])
        settings = ServerSettings(
            folder,
            given["port"],
            given["bind"],
            given["cors"],
            given["cors_origin"],
            key,
            given["models_dir"],
            given["memory"],
            given["ttl"],
        )

        async def main() -> None:
            async with open_server(settings, SystemClock()) as router:
                port = int(listener.getsockname()[1])
                state = daemon.announce(folder, given["bind"], port, __version__, guarded=bool(key))
                _say_where(state, folder, as_json=as_json)
                if made:
                    click.echo(f"a new API key was made: {key}", err=True)
                await serve(router, listener, started=signals.end)

        signals = Signals()
        try:
            anyio.run(main)
        finally:
            listener.close()
    return 0


def _say_where(state: Any, folder: Path, *, as_json: bool) -> None:
    from lmagent.modelserver.daemon import key_file

    if as_json:
        echo_json({"url": state.url, "pid": state.owner.pid, "port": state.port, "bind": state.bind})
        return
    click.echo(f"the model server listens at {state.url}/v1 (process {state.owner.pid})")
    if state.bind in ("0.0.0.0", "::"):
        from lmagent.modelserver.listening import outward

        if address := outward(state.bind):
            host = f"[{address}]" if ":" in address else address
            click.echo(f"other machines reach it at http://{host}:{state.port}/v1")
    if state.guarded:
        click.echo(f"requests need the API key that is kept in {key_file(folder)}")


@server.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def stop(as_json: bool) -> int:
    """Stop the server; running requests may end first."""
    from lmagent.modelserver import daemon

    state = daemon.stop(server_folder())
    if as_json:
        echo_json({"stopped": state is not None, "pid": state.owner.pid if state else None})
    else:
        click.echo(f"stopped (process {state.owner.pid})" if state else "no model server runs")
    return 0


@server.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(as_json: bool) -> int:
    """Say whether the server runs: exit 0 if it does and answers, else 1."""
    from lmagent.modelserver.control import Control
    from lmagent.modelserver.daemon import state_of
    from lmagent.modelserver.listening import ServerError

    folder = server_folder()
    state = state_of(folder)
    if state is None:
        echo_json({"running": False}) if as_json else click.echo("no model server runs")
        return 1
    try:
        health = str(Control(folder).get("/health")["status"])
    except ServerError as error:
        health = error.message
    known = {"running": True, "health": health, "url": state.url, "pid": state.owner.pid, "since": state.since}
    if as_json:
        echo_json({**known, "bind": state.bind, "port": state.port, "version": state.version})
    else:
        click.echo(f"{state.url}/v1 (process {state.owner.pid}, lmagent {state.version}): {health}")
    return 0 if health == "ok" else 1


@server.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def stats(as_json: bool) -> int:
    """Show the server's counters since its start."""
    from lmagent.modelserver.control import Control

    told = Control(server_folder()).get("/api/stats")
    if as_json:
        echo_json(told)
        return 0
    for name, value in told.items():
        if name == "memory":
            click.echo(f"{name:<18} {size_text(value)}")
        elif name != "models":
            click.echo(f"{name:<18} {value}")
    print_running([model for model in told["models"] if model["state"] != "unloaded"])
    return 0


def print_running(models: list[dict[str, Any]]) -> None:
    for model in models:
        row = f"{model['name']:<32} {model['state']:<11} {size_text(model['memory']):>8}  {model['active']} active"
        row += f"  {model['waiting']} waiting  {model['requests']} request{'s' * (model['requests'] != 1)}"
        click.echo(row + (f"\n  {model['reason']}" if model["reason"] else ""))


@server.command()
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl+C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON text a line.")
@click.argument("model", default="")
def logs(model: str, follow: bool, as_json: bool) -> int:
    """Show the server's log, or the output of a MODEL's engine."""
    from lmagent.modelserver.control import Control, quote

    control = Control(server_folder())
    lines = control.follow(model) if follow else control.get(f"/api/logs?model={quote(model, safe='')}")["lines"]
    for line in lines:
        echo_json(line) if as_json else click.echo("".join(c if c.isprintable() or c == "\t" else "?" for c in line))
    return 0


@server.group("models", cls=CommandGroup, default="list")
def server_models() -> None:
    """The models that the server knows."""


@server_models.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_models(as_json: bool) -> int:
    """List them with their states."""
    from lmagent.cli.tables import show_table
    from lmagent.modelserver.control import Control

    models = Control(server_folder()).get("/v1/models")["data"]
    if as_json:
        for model in models:
            echo_json(model)
    elif models:
        rows = [(m["id"], m["status"], size_text(m["size"]), str(m.get("context_length") or "")) for m in models]
        show_table(("MODEL", "STATUS", "SIZE", "WINDOW"), rows)
    else:
        click.echo("no models yet: lmagent models pull NAME, or lmagent models import FILE")
    return 0


@click.group(cls=CommandGroup)
def daemon() -> None:
    """The model server, by the names of older systems: up, down, status."""


daemon.add_command(start, "up")
daemon.add_command(stop, "down")
daemon.add_command(status, "status")
server.add_command(daemon, "daemon")
