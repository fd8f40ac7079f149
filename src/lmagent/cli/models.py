"""`lmagent models …`: the models on this machine and its servers. No output has a key in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
import msgspec

from lmagent.cli import shared
from lmagent.cli.server import print_running, server_folder
from lmagent.modelserver.engine.devices import ask_engine
from lmagent.modelserver.http.control import Control
from lmagent.modelserver.library.download import Ports
from lmagent.modelserver.library.foreign import lmstudio_folders, ollama_folder
from lmagent.modelserver.library.hub import ModelHub
from lmagent.modelserver.library.library import Library
from lmagent.modelserver.library.memory import estimate_gpu_layers, usable
from lmagent.modelserver.library.names import is_name_of
from lmagent.modelserver.library.pull import Puller
from lmagent.modelserver.library.suggestions import NOTE, SUGGESTIONS, recommended
from lmagent.modelserver.library.taking import removable, remove, take
from lmagent.modelserver.pool.machine import Memory, machine_memory
from lmagent.modelserver.spec import ModelServerError
from lmagent.providers.transport import HttpTransport
from lmagent.tools.sanitize import one_line, visible

if TYPE_CHECKING:
    from lmagent.modelserver.engine.devices import EngineReport
    from lmagent.modelserver.library.library import Details
    from lmagent.modelserver.library.pull import PulledModel

ALIASES = {
    **dict.fromkeys(("ls", "all"), "list"),
    **dict.fromkeys(("download", "get", "fetch", "install"), "pull"),
    **dict.fromkeys(("remove", "delete", "uninstall"), "rm"),
    **dict.fromkeys(("info", "inspect"), "show"),
    **dict.fromkeys(("add",), "import"),
}
"""Other programs' words for the commands."""


class ModelsGroup(shared.WorkspaceGroup):
    """A group that also knows other programs' words for its commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))


@click.group(cls=ModelsGroup, default="list")
@shared.group_workspace_option
def models() -> None:
    """Fetch, list, show and remove models, and see what this machine can run."""


def open_library(workspace: Path | None) -> Library:
    return Library(shared.loaded_settings(workspace).settings.agent_data_dir / "models", os.environ)


# --- list, show, remove -----------------------------------------------------------------------------------------------


@models.command("list")
@shared.json_option
def list_(workspace: Path | None, as_json: bool) -> None:
    """List the models: the library's, LM Studio's, Ollama's and those of other servers."""
    library, memory = open_library(workspace), machine_memory()
    there = library.all()
    if as_json:
        shared.print_json(*(_row(details, memory) for details in there))
        return
    if not there:
        click.echo(f"no models yet, in {library.folder} or of LM Studio or Ollama")
        click.echo("  → lmagent models recommend says which fit this machine; lmagent models pull NAME fetches one")
    if whole := [_cells(_row(details, memory)) for details in there if not details.entry.broken]:
        shared.show_table(("NAME", "SIZE", "NEEDS", "QUANT", "WINDOW", "FROM"), whole)
    shared.echo(*(line for details in there for line in _broken(details)))
    for companion in library.companions():
        click.echo(f"- {one_line(companion.path.name)} is no model by itself but a file of the kind: {companion.kind}")


@models.command()
@click.argument("name")
@shared.json_option
def show(workspace: Path | None, name: str, as_json: bool) -> None:
    """Show the facts about a model: architecture, window, memory, template, settings."""
    details = open_library(workspace).details(name)
    settings = details.entry.settings
    more = {
        "facts": msgspec.to_builtins(details.facts, enc_hook=str) or {},
        "settings": {field: getattr(settings, field) for field in settings.__struct_fields__},
        "settings_file": str(details.sheet.path) if details.sheet.path != Path() else "",
        "notes": details.notes,
    }
    lines = [f"{label:<14} {one_line(value, 1000)}" for label, value in _described(details).items() if value]
    lines += [*_broken(details), *(f"! {note}" for note in details.notes)]
    shared.show(as_json, [_row(details, machine_memory()) | more], lines)


@models.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@shared.json_option
def rm(workspace: Path | None, names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove models from the library, with their settings. Models of LM Studio and Ollama are never touched."""
    library = open_library(workspace)
    ask = not yes and sys.stdin.isatty()
    meant = {details.entry.name: details for details in [_meant(library, name, guess=ask) for name in names]}
    doomed = [(details, removable(details, library.folder, library.all())) for details in meant.values()]
    for details, paths in doomed:
        name = details.entry.name
        if ask:
            click.echo(f"{name}, {shared.amount(details.entry.size)}:", err=True)
            for path in paths:
                click.echo(f"  {visible(str(path))}", err=True)
            if not click.confirm("remove it?", err=True):
                click.echo(f"kept {name}", err=True)
                continue
        freed = remove(paths, library.folder)
        row = {"removed": name, "freed": freed, "paths": list(map(str, paths))}
        shared.show(as_json, [row], [f"removed {name}, {shared.amount(freed)} are free again"])


def _meant(library: Library, name: str, *, guess: bool) -> Details:
    """Return the model to remove. A part of its name is enough only if the user is asked before."""
    details = library.details(name)
    if guess or is_name_of(name, details.entry):
        return details
    text = f"{name!r} is only a part of the name {details.entry.name}; without asking, nothing is removed by a part"
    raise ModelServerError(
        text, status=400, code="model_ambiguous", fix=f"type: lmagent models rm {details.entry.name}"
    )


def _broken(details: Details) -> list[str]:
    """Return the lines about a model that cannot be loaded; none for another."""
    entry, fix = details.entry, one_line(details.fix, 400)
    lines = [f"✗ {entry.name}: {one_line(entry.broken, 400)}", f"  → {fix}" if fix else ""]
    return list(filter(None, lines)) if entry.broken else []


def _fits(details: Details, memory: Memory) -> bool | None:
    """Whether a model fits into the memory that is free now; None if unknown."""
    known = details.entry.needed and memory.total
    return details.entry.needed <= usable(memory.free) if known else None


def _row(details: Details, memory: Memory) -> dict[str, Any]:
    entry, facts = details.entry, details.facts
    row: dict[str, Any] = {
        name: getattr(entry, name)
        for name in ("name", "engine", "source", "size", "needed", "url", "upstream", "broken")
    }
    return row | {
        "kind": facts.kind if facts is not None else "",
        "path": str(entry.path) if entry.path != Path() else "",
        "fits": _fits(details, memory),
        "quantisation": facts.quantisation if facts is not None else "",
        "parameters": facts.parameters if facts is not None else 0,
        "context": entry.settings.context,
        "fix": details.fix,
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a model's cells in the table."""
    if row["engine"] == "upstream":
        return (row["name"], "", "", "", "", f"{row['url']} as {row['upstream']}")
    kind = f", {row['kind']}" if row["kind"] not in ("", "chat") else ""
    lacks = " (too much now)" if row["fits"] is False else ""
    sizes = shared.amount(row["size"]), f"{shared.amount(row['needed'])}{lacks}"
    return (row["name"], *sizes, row["quantisation"], f"{row['context']:,}", f"{row['source']}{kind}")


def _described(details: Details) -> dict[str, str]:
    """Return the facts about a model by their labels; empty if they are unknown."""
    entry, facts, sheet = details.entry, details.facts, details.sheet
    rows = {"name": entry.name, "engine": entry.engine, "from": entry.source}
    rows |= {"server": entry.url, "its name there": entry.upstream}
    rows["file"] = str(entry.path) if entry.path != Path() else ""
    if facts is not None:
        knows = " and ".join(word for word, has in (("tools", facts.tools), ("thoughts", facts.thinks)) if has)
        rows |= {
            "kind": facts.kind,
            "model": facts.name,
            "architecture": facts.architecture + (f", {facts.experts} experts" if facts.experts else ""),
            "parameters": f"{facts.parameters / 1e9:.2f}B",
            "quantisation": facts.quantisation,
            "made for": f"{facts.context:,} tokens" if facts.context else "",
            "layers": f"{facts.layers:,}",
            "template": (f"knows {knows}" if knows else "plain") if facts.template else "none",
        }
    window = f"at a window of {entry.settings.context:,} tokens"
    return rows | {
        "on disk": shared.amount(entry.size) if entry.size else "",
        "memory": f"at most {shared.amount(entry.needed)} {window}" if entry.needed else "",
        "settings": f"{sheet.path} ({', '.join(sorted(sheet.given)) or 'empty'})" if sheet.path != Path() else "",
    }


# --- pull and import --------------------------------------------------------------------------------------------------


@models.command()
@click.argument("name")
@click.option("--with-mmproj", is_flag=True, help="Fetch the projector too, with which the model sees images.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON; shows no progress.")
def pull(workspace: Path | None, name: str, with_mmproj: bool, quiet: bool, as_json: bool) -> None:
    """Fetch a model of Hugging Face: OWNER/REPO, OWNER/REPO:QUANT, an address, or a short name.

    Without QUANT the best one of about four bits is taken. A stopped pull continues at the same place.
    """
    library = open_library(workspace)
    pulled = _fetched(library, name, with_mmproj=with_mmproj, quiet=quiet or as_json)
    done = "fetched" if pulled.fetched else "already there:"
    found = _show_added(library, pulled.paths, done, as_json, fetched=pulled.fetched)
    if found and not as_json and pulled.choice.projectors and not with_mmproj:
        projector = one_line(pulled.choice.projectors[0].name)
        click.echo(f"- it can see images with {projector}: lmagent models pull {name} --with-mmproj", err=True)


@models.command("import")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--link", "way", flag_value="link", help="Leave the file where it is, and link to it.")
@click.option("--copy", "way", flag_value="copy", help="Copy the file (the default).")
@click.option("--move", "way", flag_value="move", help="Move the file.")
@click.option("--name", default="", help="Name for the model; without it, the file's name.")
@shared.json_option
def import_(workspace: Path | None, path: Path, way: Any, name: str, as_json: bool) -> None:
    """Take a GGUF file into the library; of a model in parts, name any."""
    library = open_library(workspace)
    _, paths = take(path.absolute(), library.folder, way or "copy", name)
    _show_added(library, paths, "imported", as_json)


def _show_added(library: Library, paths: tuple[Path, ...], done: str, as_json: bool, **more: Any) -> bool:
    """Report a file that was added; return whether it is a model by itself."""
    details = _at(library, paths[0])
    kinds = [file.kind for file in library.companions() if file.path in paths]
    row: dict[str, Any] = {"name": "", "kind": kinds[0] if kinds else "other", "paths": list(map(str, paths))}
    line = f"{done} {one_line(paths[0].name, 400)}: no model by itself but a file of the kind: {row['kind']}"
    if details is not None:
        entry = details.entry
        row |= {"name": entry.name, "kind": details.facts.kind if details.facts is not None else ""}
        row |= {"size": entry.size, "needed": entry.needed, "broken": entry.broken, **more}
        needs = f"({shared.amount(entry.size)}, needs {shared.amount(entry.needed)} of memory)"
        line = f"{done} {entry.name} {needs}\n  → lmagent -m {entry.name}"
        if entry.broken:
            line = f"{done} {entry.name}, but it cannot be loaded: {one_line(entry.broken, 400)}"
    shared.show(as_json, [row], [line])
    return details is not None


def download(library: Library, name: str) -> str:
    """Fetch a model and return its name in the library. Raises LmagentError if it cannot be fetched or loaded."""
    details = _at(library, _fetched(library, name).paths[0])
    if details is None or details.entry.broken:
        why = details.entry.broken if details is not None else "it is no model"
        raise ModelServerError(f"{name} cannot be loaded: {why}", status=422, code="model_broken")
    return details.entry.name


def _fetched(library: Library, name: str, *, with_mmproj: bool = False, quiet: bool = False) -> PulledModel:
    shown = PullProgress(quiet=quiet)

    async def fetch() -> PulledModel:
        transport = HttpTransport()
        try:
            puller = Puller(ModelHub(transport, os.environ), library.folder, Ports(shown))
            return await puller.pull(name, with_mmproj=with_mmproj)
        finally:
            await transport.aclose()

    try:
        return anyio.run(fetch)
    except KeyboardInterrupt:
        shown.close()
        click.echo("stopped; the downloaded part is kept, and the same command resumes it", err=True)
        raise
    finally:
        shown.close()


def _at(library: Library, path: Path) -> Details | None:
    """Return the model of this file, also by another name of the file; None for a file that is no model by itself."""

    def has_it(details: Details) -> bool:
        files = {details.entry.path, *(details.facts.parts if details.facts is not None else ())}
        return path in files or any(file.exists() and path.exists() and file.samefile(path) for file in files)

    return next(filter(has_it, library.all()), None)


class PullProgress:
    """The progress of a download on standard error: a bar on a terminal, elsewhere a line for each file."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None

    def begin(self, name: str, size: int, have: int) -> None:
        self.close()
        if not self._quiet:
            label = f"{name}: {have / 1e6:,.0f} of {size / 1e6:,.0f} MB"
            self._bar = click.progressbar(length=max(size, 1), label=label, file=sys.stderr)
            self._bar.pos = have
            self._bar.render_progress()

    def advance(self, count: int) -> None:
        if self._bar is not None:
            self._bar.update(count)

    def note(self, text: str) -> None:
        if not self._quiet:
            if self._bar is not None:
                self._bar.render_finish()
            click.echo(one_line(text, 2000), err=True)

    def close(self) -> None:
        """End the bar's line."""
        if self._bar is not None:
            self._bar.render_finish()
            self._bar = None


# --- what this machine can run ----------------------------------------------------------------------------------------


@models.command()
@shared.json_option
def recommend(workspace: Path | None, as_json: bool) -> None:
    """Say which models fit the memory of this machine: of those that are there, and of well-known ones."""
    memory = machine_memory()
    good = recommended(memory.total)
    there = open_library(workspace).all()
    own = [details.entry for details in there if not details.entry.broken and _fits(details, memory)]
    lines = [_memory_line(memory)]
    lines += [f"already here, and fits: {entry.name} (needs {shared.amount(entry.needed)})" for entry in own]
    names = [entry.name for entry in own]
    shared.show(as_json, [{"memory": memory, "there": names, "suggestions": good, "note": NOTE}], lines)
    if as_json:
        return
    rows = [
        (item.name, f"{item.download:.1f} GB", shared.amount(item.bytes), item.text) for item in good or SUGGESTIONS[:1]
    ]
    shared.show_table(("NAME", "DOWNLOAD", "MEMORY", "GOOD FOR"), rows)
    click.echo(f"  → lmagent models pull {rows[0][0]}\n{NOTE}")


@models.command()
@shared.json_option
def doctor(workspace: Path | None, as_json: bool) -> int:
    """Check the engine, its devices, the memory and the folders of models."""
    library = open_library(workspace)
    memory, engine = machine_memory(), ask_engine()
    whole = [details for details in library.all() if not details.entry.broken]
    broken = [details for details in library.all() if details.entry.broken]
    free = [device.free for device in engine.gpus]
    layers = [
        {"name": one.entry.name, "fit": estimate_gpu_layers(facts, one.entry.settings, free), "of": facts.layers + 1}
        for one in whole
        if free and (facts := one.facts) is not None
    ]
    folders = _folders(library)
    answer: dict[str, Any] = {"engine": engine, "memory": memory, "folders": folders, "gpu_layers": layers}
    answer["broken"] = [{"name": item.entry.name, "why": item.entry.broken, "fix": item.fix} for item in broken]
    lines = [*_engine_lines(engine), f"{'✓' if memory.total else '!'} {_memory_line(memory)}"]
    lines += [f"✓ models   {count} of {name} in {one_line(path, 1000)}" for name, path, count in folders]
    lines += [f"✓ gpu      {row['name']}: {row['fit']} of {row['of']} layers fit" for row in layers]
    shared.show(as_json, [answer], [*lines, *(line for details in broken for line in _broken(details))])
    return 1 if engine.problem else 0


def _memory_line(memory: Memory) -> str:
    bound = " (bounded by the container)" if memory.limit == "container" else ""
    return f"memory:  {shared.amount(memory.total)}, {shared.amount(memory.free)} free now{bound}"


def _engine_lines(engine: EngineReport) -> Iterator[str]:
    if engine.problem:
        yield f"✗ engine   {one_line(engine.problem, 400)}\n  → {engine.fix}"
        return
    yield f"✓ engine   xllamacpp {engine.version} ({one_line(engine.system, 400)})"
    for device in engine.devices:
        room = f", {shared.amount(device.free)} of {shared.amount(device.total)} free" if device.total else ""
        yield f"✓ device   {one_line(device.name)}: {one_line(device.description)}{room}"
    if not engine.gpus:
        yield "! gpu      this build of the engine sees no graphics card; builds that do: docs/models.md"


def _folders(library: Library) -> list[tuple[str, str, int]]:
    """Return the owner of each folder, its path, and its number of models."""

    def count(*sources: str) -> int:
        return sum(entry.source in sources for entry in library.entries())

    rows = [("the library", str(library.folder), count("library", "upstream"))]
    rows += [("LM Studio", str(folder), count("lmstudio")) for folder in lmstudio_folders(os.environ)]
    ollama = ollama_folder(os.environ)
    return [*rows, ("Ollama", str(ollama), count("ollama"))] if ollama is not None else rows


# --- the models that the server runs ----------------------------------------------------------------------------------


@models.command()
@shared.json_option
def ps(_: Path | None, as_json: bool) -> None:
    """Show the models that are loaded."""
    running = Control(server_folder()).get("/api/ps")["models"]
    if as_json:
        shared.print_json(*running)
    else:
        print_running(running)


@models.command()
@click.argument("name")
@click.option("--context", type=click.IntRange(min=1), metavar="TOKENS", help="Its window.")
@click.option("--gpu-layers", type=click.IntRange(min=-1), metavar="N", help="Layers on the GPU; -1: as many as fit.")
@click.option("--flash-attention", type=click.Choice(["auto", "on", "off"]), help="Where the engine uses it.")
@click.option(
    "--ttl", type=click.FloatRange(min=0), metavar="SECONDS", help="Unload it after that time without a request."
)
@shared.json_option
def load(_: Path | None, name: str, as_json: bool, **options: Any) -> None:
    """Load a model now; lifts the pause of one that crashed too often.

    The options hold, in place of the model's own settings, until you unload it.
    """
    given = {option: value for option, value in options.items() if value is not None}
    _show_change(Control(server_folder()).post("/api/load", name, **given), as_json=as_json)


@models.command()
@click.argument("name", required=False)
@click.option("-a", "--all", "everything", is_flag=True, help="Unload all models.")
@shared.json_option
def unload(_: Path | None, name: str | None, everything: bool, as_json: bool) -> None:
    """Unload a model once its requests are done; without a NAME, the one that is loaded."""
    control = Control(server_folder())
    if everything and name:
        raise click.UsageError("with --all there is no NAME")
    names = [name] if name else [str(model["name"]) for model in control.get("/api/ps")["models"]]
    if not everything and len(names) != 1:
        text = f"{len(names)} models are loaded: {', '.join(map(one_line, names))}" if names else "no model is loaded"
        raise ModelServerError(text, status=400, code="model_ambiguous", fix="name one, or use --all")
    for one in names:
        _show_change(control.post("/api/unload", one), as_json=as_json)
    if not names:
        shared.show(as_json, [], ["no model is loaded"])


def _show_change(model: dict[str, Any], *, as_json: bool) -> None:
    took = f" in {model['loaded_s']:.1f} s, {shared.amount(model['memory'])}" if model["state"] == "ready" else ""
    took = ", on another server" if model["engine"] == "upstream" else took
    shared.show(as_json, [model], [f"{model['name']}: {model['state']}{took}"])
