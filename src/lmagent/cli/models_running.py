"""`lmagent models ps|load|unload`: the models that the server runs."""

from __future__ import annotations

import click

from lmagent.cli.server import echo_json, print_running, server_folder, size_text


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def ps(as_json: bool) -> int:
    """Show the models that are loaded."""
    from lmagent.modelserver.control import Control

    running = Control(server_folder()).get("/api/ps")["models"]
    if as_json:
        for model in running:
            echo_json(model)
    else:
        print_running(running)
        if not running:
            click.echo("no model is loaded")
    return 0


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def load(name: str, as_json: bool) -> int:
    """Load a model now; lifts the pause of one that crashed too often."""
    return _change("/api/load", name, as_json=as_json)


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def unload(name: str, as_json: bool) -> int:
    """Unload a model once its requests are done."""
    return _change("/api/unload", name, as_json=as_json)


def _change(path: str, name: str, *, as_json: bool) -> int:
    from lmagent.modelserver.control import Control

    model = Control(server_folder()).post(path, name)
    if as_json:
        echo_json(model)
        return 0
    took = f" in {model['loaded_s']:.1f} s, {size_text(model['memory'])}" if model["state"] == "ready" else ""
    click.echo(f"{model['name']}: {model['state']}{took}")
    return 0


COMMANDS = (ps, load, unload)


def extend(group: click.Group) -> None:
    for command in COMMANDS:
        group.add_command(command)
