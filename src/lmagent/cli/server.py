"""`lmagent server …`: the model server, and `lmagent daemon …`, its older name."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import click

from lmagent import __version__
from lmagent.app.clock import SystemClock
from lmagent.app.logs import log_to
from lmagent.cli import shared
from lmagent.gateway.http.lan import addresses
from lmagent.modelserver.errors import LOG_FILE
from lmagent.modelserver.http import daemon as own_process
from lmagent.modelserver.http.control import Control
from lmagent.modelserver.http.daemon import KEY_VARIABLE, key_file, start_detached, state_of
from lmagent.modelserver.http.listening import ServerError, Signals, listen

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def server_folder() -> Path:
    return shared.loaded_settings().settings.agent_data_dir / "server"


def control() -> Control:
    """Return a client of the server that runs."""
    return Control(server_folder())


def _bytes(context: click.Context, option: click.Parameter, value: str | None) -> int:
    if not value:
        return 0
    if not (found := _SIZE.fullmatch(value.strip())):
        raise click.BadParameter(f"{value!r} is no shared.amount of memory; for example 12GB")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def _origin(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    for origin in value:
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s*]+/?", origin, re.IGNORECASE):
            raise click.BadParameter(f"{origin!r} is no origin; for example https://chat.example:8080")
    return value


@click.group(cls=shared.CommandGroup)
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
    folder = server_folder()
    if foreground:
        return _run(folder, as_json=as_json, **given)
    if (state := state_of(folder)) is not None:
        fix = "lmagent server stop ends it"
        raise ServerError(f"the model server runs already at {state.url} (process {state.owner.pid})", fix=fix)
    folders = given["models_dir"] and given["models_dir"].absolute()
    named = {"port": given["port"], "bind": given["bind"], "memory": given["memory"], "ttl": given["ttl"]}
    pairs = [*{**named, "models-dir": folders}.items(), *(("cors-origin", origin) for origin in given["cors_origin"])]
    arguments = [word for name, value in pairs if value is not None for word in (f"--{name}", str(value))]
    arguments += ["--cors"] if given["cors"] else []
    env = {**os.environ, "AGENT_DATA_DIR": str(folder.parent)}  # no workspace, whose .env might choose another value
    if given["api_key"]:
        env[KEY_VARIABLE] = given["api_key"]
    state = start_detached(folder, arguments, env)
    _say_where(state, folder, as_json=as_json)
    return 0


def _run(folder: Path, *, as_json: bool, **given: Any) -> int:
    from lmagent.modelserver.http.serving import ServerSettings, serve
    from lmagent.modelserver.opening import open_server

    gc.enable()
    with own_process.holding(folder):
        log_to(folder / LOG_FILE, shared.loaded_settings().settings)
        key, made = own_process.key_for(folder, given["bind"], given["api_key"])
        listener = listen(given["bind"], given["port"])
        place = (folder, given["port"], given["bind"], given["cors"], given["cors_origin"])
        settings = ServerSettings(*place, key, given["models_dir"], given["memory"], given["ttl"])

        async def main() -> None:
            async with open_server(settings, SystemClock()) as router:
                port = int(listener.getsockname()[1])
                state = own_process.announce(folder, given["bind"], port, __version__, guarded=bool(key))
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
    lines = [f"the model server listens at {state.url}/v1 (process {state.owner.pid})"]
    if state.bind in ("0.0.0.0", "::") and (found := addresses()):
        lines.append(f"other machines reach it at http://{found[0]}:{state.port}/v1")
    lines += [f"requests need the API key that is kept in {key_file(folder)}"] if state.guarded else []
    shared.show(as_json, [{"url": state.url, "pid": state.owner.pid, "port": state.port, "bind": state.bind}], lines)


@server.command()
@shared.json_option
def stop(as_json: bool) -> None:
    """Stop the server; running requests may end first."""
    state = own_process.stop(server_folder())
    pid = state.owner.pid if state else None
    text = f"stopped (process {pid})" if state else "no model server runs"
    shared.show(as_json, [{"stopped": state is not None, "pid": pid}], [text])


@server.command()
@shared.json_option
def status(as_json: bool) -> int:
    """Say whether the server runs: exit 0 if it does and answers, else 1."""
    folder = server_folder()
    state = state_of(folder)
    if state is None:
        shared.show(as_json, [{"running": False}], ["no model server runs"])
        return 1
    try:
        health = str(control().get("/health")["status"])
    except ServerError as error:
        health = error.message
    known = {"running": True, "health": health, "url": state.url, "pid": state.owner.pid, "since": state.since}
    known |= {"bind": state.bind, "port": state.port, "version": state.version}
    line = f"{state.url}/v1 (process {state.owner.pid}, lmagent {state.version}): {health}"
    shared.show(as_json, [known], [line])
    return 0 if health == "ok" else 1


@server.command()
@shared.json_option
def stats(as_json: bool) -> None:
    """Show the server's counters since its start."""
    told = control().get("/api/stats")
    rows = {name: value for name, value in told.items() if name != "models"}
    rows["memory"] = shared.amount(told["memory"])
    shared.show(as_json, [told], (f"{name:<18} {value}" for name, value in rows.items()))
    if not as_json:
        print_running([model for model in told["models"] if model["state"] != "unloaded"])


def print_running(models: list[dict[str, Any]]) -> None:
    counts = ("active", "waiting", "requests", "reason")
    rows = [
        (model["name"], model["state"], shared.amount(model["memory"]), *(str(model[name] or "") for name in counts))
        for model in models
    ]
    if rows:
        shared.show_table(("MODEL", "STATE", "MEMORY", *map(str.upper, counts)), rows)
    else:
        click.echo("no model is loaded")


@server.command()
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl+C.")
@shared.json_option
@click.argument("model", default="")
def logs(model: str, follow: bool, as_json: bool) -> None:
    """Show the server's log, or the output of a MODEL's engine."""
    asked = control()
    lines = asked.follow(model) if follow else asked.get(f"/api/logs?model={quote(model, safe='')}")["lines"]
    for line in lines:
        shared.show(as_json, [line], [line])


@server.group("models", cls=shared.CommandGroup, default="list")
def server_models() -> None:
    """The models that the server knows."""


@server_models.command("list")
@shared.json_option
def list_models(as_json: bool) -> None:
    """List them with their states."""
    models = control().get("/v1/models")["data"]
    if as_json:
        shared.print_json(*models)
    elif models:
        rows = [(m["id"], m["status"], shared.amount(m["size"]), str(m.get("context_length") or "")) for m in models]
        shared.show_table(("MODEL", "STATUS", "SIZE", "WINDOW"), rows)
    else:
        click.echo("no models yet: lmagent models pull NAME, or lmagent models import FILE")


@click.group(cls=shared.CommandGroup)
def daemon() -> None:
    """The model server, by the names of older systems: up, down, status."""


daemon.add_command(start, "up")
daemon.add_command(stop, "down")
daemon.add_command(status, "status")
server.add_command(daemon, "daemon")
