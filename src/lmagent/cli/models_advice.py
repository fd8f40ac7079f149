"""`lmagent models recommend|doctor`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmagent.cli.models_text import amount, fits
from lmagent.cli.server import echo_json
from lmagent.tools.sanitize import one_line

if TYPE_CHECKING:
    from lmagent.modelserver.devices import EngineReport
    from lmagent.modelserver.library import Details, Library
    from lmagent.modelserver.machine import Memory


def extend(group: click.Group, open_library: Callable[[Path | None], Library]) -> None:
    @group.command()
    @click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
    @click.pass_context
    def recommend(ctx: click.Context, as_json: bool) -> int:
        """Say which models fit the memory of this machine: of those that are there, and of well-known ones."""
        return _recommend(open_library(ctx.obj), as_json=as_json)

    @group.command()
    @click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
    @click.pass_context
    def doctor(ctx: click.Context, as_json: bool) -> int:
        """Check the engine, its devices, the memory and the folders of models."""
        return _doctor(open_library(ctx.obj), as_json=as_json)


def _recommend(library: Library, *, as_json: bool) -> int:
    from lmagent.modelserver.machine import machine_memory
    from lmagent.modelserver.suggestions import NOTE, SUGGESTIONS, recommended

    memory = machine_memory()
    good = recommended(memory.total)
    own = [details for details in library.all() if not details.entry.broken and fits(details, memory)]
    if as_json:
        answer = {"memory": memory, "there": [item.entry.name for item in own], "suggestions": good, "note": NOTE}
        echo_json(answer)
        return 0
    click.echo(f"memory: {amount(memory.total)}, {amount(memory.free)} free now{_bound(memory)}")
    for details in own:
        click.echo(f"already here, and fits: {details.entry.name} (needs {amount(details.entry.needed)})")
    if not good:
        smallest = SUGGESTIONS[0]
        click.echo(f"even {smallest.name} takes {amount(smallest.bytes)}; name a model on another machine instead")
        click.echo('  → a file NAME.toml with upstream = "http://HOST:PORT/v1" in the library\'s folder; or --base-url')
        return 0
    width = max(len(item.name) for item in good)
    click.echo(f"  {'NAME':<{width}}  {'DOWNLOAD':>8}  {'MEMORY':>7}  GOOD FOR")
    for item in good:
        click.echo(f"  {item.name:<{width}}  {item.download:>5.1f} GB  {amount(item.bytes):>7}  {item.text}")
    click.echo(f"  → lmagent models pull {good[0].name}")
    click.echo(NOTE)
    return 0


def _bound(memory: Memory) -> str:
    return " (bounded by the container)" if memory.limit == "container" else ""


def _doctor(library: Library, *, as_json: bool) -> int:
    from lmagent.modelserver.devices import ask_engine
    from lmagent.modelserver.machine import machine_memory

    memory, engine = machine_memory(), ask_engine()
    there = library.all()
    layers = _layers(there, engine)
    folders = _folders(library)
    if as_json:
        answer: dict[str, Any] = {
            "engine": engine,
            "memory": memory,
            "folders": folders,
            "gpu_layers": [{"name": name, "fit": fit, "of": of} for name, fit, of in layers],
            "broken": [{"name": item.entry.name, "why": item.entry.broken, "fix": item.fix} for item in _broken(there)],
        }
        echo_json(answer)
        return 1 if engine.problem else 0
    _print_engine(engine)
    click.echo(
        f"{'✓' if memory.total else '!'} memory   {amount(memory.total)}, {amount(memory.free)} free{_bound(memory)}"
    )
    for name, path, count in folders:
        click.echo(f"✓ models   {count} of {name} in {one_line(path, 1000)}")
    for name, fit, of in layers:
        click.echo(f"✓ gpu      {name}: {fit} of {of} layers fit")
    for item in _broken(there):
        click.echo(f"✗ {item.entry.name}: {one_line(item.entry.broken, 400)}")
        if item.fix:
            click.echo(f"  → {one_line(item.fix, 400)}")
    return 1 if engine.problem else 0


def _print_engine(engine: EngineReport) -> None:
    if engine.problem:
        click.echo(f"✗ engine   {one_line(engine.problem, 400)}")
        click.echo(f"  → {engine.fix}")
        return
    click.echo(f"✓ engine   xllamacpp {engine.version}")
    for device in engine.devices:
        room = f", {amount(device.free)} of {amount(device.total)} free" if device.total else ""
        click.echo(f"✓ device   {one_line(device.name)}: {one_line(device.description)}{room}")
    if not engine.gpus:
        click.echo("! gpu      this build of the engine sees no graphics card; builds that do: docs/models.md")
    click.echo(f"  {one_line(engine.system, 400)}")


def _layers(there: Any, engine: EngineReport) -> list[tuple[str, int, int]]:
    """Return model, layers that fit the graphics cards, and all its layers."""
    from lmagent.modelserver.memory import estimate_gpu_layers

    free = [device.free for device in engine.gpus]
    return [
        (item.entry.name, estimate_gpu_layers(item.facts, item.entry.settings, free), item.facts.layers + 1)
        for item in there
        if free and item.facts is not None and not item.entry.broken
    ]


def _broken(there: Any) -> list[Details]:
    return [item for item in there if item.entry.broken]


def _folders(library: Library) -> list[tuple[str, str, int]]:
    """Return the owner of each folder, its path, and its number of models."""
    import os

    from lmagent.modelserver.foreign import lmstudio_folders, ollama_folder

    def count(source: str) -> int:
        return sum(entry.source == source for entry in library.entries())

    own = count("library") + count("upstream")
    rows = [("the library", str(library.folder), own)]
    rows += [("LM Studio", str(folder), count("lmstudio")) for folder in lmstudio_folders(os.environ)]
    ollama = ollama_folder(os.environ)
    return [*rows, ("Ollama", str(ollama), count("ollama"))] if ollama is not None else rows
