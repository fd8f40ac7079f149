"""`lmagent models …`: the models on this machine and its servers. No output has a key in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
import msgspec

from lmagent.cli import shared
from lmagent.cli.server import print_running, server_folder
from lmagent.core.errors import LmagentError
from lmagent.modelserver.engine.devices import ask_engine
from lmagent.modelserver.http.control import Control
from lmagent.modelserver.library.download import Ports
from lmagent.modelserver.library.foreign import lmstudio_folders, ollama_folder
from lmagent.modelserver.library.hub import ModelHub
from lmagent.modelserver.library.library import NO_MODELS, Library
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
    from rich.progress import Progress, TaskID

    from lmagent.modelserver.engine.devices import EngineReport
    from lmagent.modelserver.library.download import DownloadProgress
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

STEP = 10
"""Percent between two lines about a download."""


class ModelsGroup(shared.CommandGroup):
    """A group that also knows other programs' words for its commands."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; an error may quote a hub, a file or its name, so control characters are removed."""
        try:
            return super().invoke(ctx)
        except LmagentError as error:
            error.message, error.fix = visible(error.message), visible(error.fix)
            raise


@click.group(cls=ModelsGroup, default="list")
@shared.group_workspace_option
def models() -> None:
    """Fetch, list, show and remove models, and see what this machine can run."""


def open_library(workspace: Path | None) -> Library:
    return Library(shared.loaded_settings(workspace).settings.agent_data_dir / "models", os.environ)


# --- list, show, remove -----------------------------------------------------------------------------------------------


@models.command("list")
@shared.json_lines_option
@click.pass_obj
def list_(workspace: Path | None, as_json: bool) -> int:
    """List the models: the library's, LM Studio's, Ollama's and those of other servers."""
    library, memory = open_library(workspace), machine_memory()
    there = library.all()
    if as_json:
        shared.print_json(*(_row(details, memory) for details in there))
        return 0
    if not there:
        click.echo(f"no models yet, in {library.folder} or of LM Studio or Ollama")
        click.echo("  → lmagent models recommend says which fit this machine; lmagent models pull NAME fetches one")
    width = min(60, max((len(details.entry.name) for details in there), default=0))
    for details in there:
        name = f"{details.entry.name:<{width}}"
        if details.entry.broken:
            _print_broken(f"✗ {name} ", details)
        else:
            click.echo(f"  {name}  {'  '.join(_listed(details, memory))}")
    for companion in library.companions():
        click.echo(f"- {one_line(companion.path.name)} is no model by itself but a file of the kind: {companion.kind}")
    return 0


@models.command()
@click.argument("name")
@shared.json_option
@click.pass_obj
def show(workspace: Path | None, name: str, as_json: bool) -> int:
    """Show the facts about a model: architecture, window, memory, template, settings."""
    details, memory = open_library(workspace).details(name), machine_memory()
    if as_json:
        facts: Any = msgspec.to_builtins(details.facts, enc_hook=str) if details.facts is not None else {}
        settings = {name: getattr(details.entry.settings, name) for name in details.entry.settings.__struct_fields__}
        sheet = str(details.sheet.path) if details.sheet.path != Path() else ""
        more = {"facts": facts, "settings": settings, "settings_file": sheet, "notes": details.notes}
        shared.print_json({**_row(details, memory), **more})
        return 0
    for label, value in _described(details):
        click.echo(f"{label:<14} {value}")
    if details.entry.broken:
        _print_broken("✗", details)
    for note in details.notes:
        click.echo(f"! {note}")
    return 0


@models.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@shared.json_lines_option
@click.pass_obj
def rm(workspace: Path | None, names: tuple[str, ...], yes: bool, as_json: bool) -> int:
    """Remove models from the library, with their settings. Models of LM Studio and Ollama are never touched."""
    library = open_library(workspace)
    ask = not yes and sys.stdin.isatty()
    meant = {details.entry.name: details for details in [_meant(library, name, guess=ask) for name in names]}
    doomed = [(details, removable(details, library.folder, library.all())) for details in meant.values()]
    for details, paths in doomed:
        if ask:
            click.echo(f"{details.entry.name}, {shared.amount(details.entry.size)}:", err=True)
            for path in paths:
                click.echo(f"  {visible(str(path))}", err=True)
            if not click.confirm("remove it?", err=True):
                click.echo(f"kept {details.entry.name}", err=True)
                continue
        freed = remove(paths, library.folder)
        if as_json:
            shared.print_json({"removed": details.entry.name, "freed": freed, "paths": list(map(str, paths))})
        else:
            click.echo(f"removed {details.entry.name}, {shared.amount(freed)} are free again")
    return 0


def _meant(library: Library, name: str, *, guess: bool) -> Details:
    """Return the model to remove. A part of its name is enough only if the user is asked before."""
    details = library.details(name)
    if guess or is_name_of(name, details.entry):
        return details
    text = f"{name!r} is only a part of the name {details.entry.name}; without asking, nothing is removed by a part"
    raise ModelServerError(
        text, status=400, code="model_ambiguous", fix=f"type: lmagent models rm {details.entry.name}"
    )


def _print_broken(mark: str, details: Details) -> None:
    click.echo(f"{mark} {one_line(details.entry.broken, 400)}")
    if details.fix:
        click.echo(f"  → {one_line(details.fix, 400)}")


def _fits(details: Details, memory: Memory) -> bool | None:
    """Whether a model fits into the memory that is free now; None if unknown."""
    known = details.entry.needed and memory.total
    return details.entry.needed <= usable(memory.free) if known else None


def _row(details: Details, memory: Memory) -> dict[str, Any]:
    entry, facts = details.entry, details.facts
    return {
        "name": entry.name,
        "engine": entry.engine,
        "source": entry.source,
        "kind": facts.kind if facts is not None else "",
        "path": str(entry.path) if entry.path != Path() else "",
        "size": entry.size,
        "needed": entry.needed,
        "fits": _fits(details, memory),
        "quantisation": facts.quantisation if facts is not None else "",
        "parameters": facts.parameters if facts is not None else 0,
        "context": entry.settings.context,
        "url": entry.url,
        "upstream": entry.upstream,
        "broken": entry.broken,
        "fix": details.fix,
    }


def _listed(details: Details, memory: Memory) -> Iterator[str]:
    entry, facts = details.entry, details.facts
    if entry.engine == "upstream":
        yield f"on {one_line(entry.url)} as {one_line(entry.upstream)}"
        return
    yield f"{shared.amount(entry.size):>8}"
    lacks = f" (only {shared.amount(memory.free)} are free)" if _fits(details, memory) is False else ""
    yield f"needs {shared.amount(entry.needed)}{lacks}"
    if facts is None:
        yield "transformers"
    else:
        yield from filter(None, (facts.quantisation, f"{entry.settings.context:,} tokens"))
        yield from (facts.kind,) if facts.kind != "chat" else ()
    yield from (entry.source,) if entry.source != "library" else ()


def _described(details: Details) -> Iterator[tuple[str, str]]:
    entry, facts, sheet = details.entry, details.facts, details.sheet.path
    yield "name", entry.name
    yield "engine", entry.engine
    yield "from", entry.source
    if entry.engine == "upstream":
        yield "server", one_line(entry.url)
        yield "its name there", one_line(entry.upstream)
    else:
        yield "file", one_line(str(entry.path), 1000)
    if facts is not None:
        kv = "/".join(map(str, sorted(set(facts.kv_heads))))
        count = facts.parameters
        template = [word for word, has in (("tools", facts.tools), ("thoughts", facts.thinks)) if has]
        yield "kind", facts.kind + (f" (pooling: {facts.pooling})" if facts.pooling else "")
        yield "model", one_line(facts.name) or "-"
        yield "architecture", one_line(facts.architecture) + (f", {facts.experts} experts" if facts.experts else "")
        yield "parameters", f"{count / 1e9:.2f}B" if count >= 1e9 else f"{count / 1e6:.1f}M"
        yield "quantisation", facts.quantisation or "-"
        yield "made for", f"{facts.context:,} tokens" if facts.context else "-"
        yield "shape", f"{facts.layers} layers, width {facts.embedding}, {facts.heads} heads ({kv} of keys)"
        yield "vocabulary", f"{facts.vocabulary:,} ({one_line(facts.tokenizer)})"
        knows = f"knows {' and '.join(template)}" if template else "plain"
        yield "template", knows if facts.template else "none"
        if len(facts.parts) > 1:
            yield "parts", str(len(facts.parts))
    if entry.size:
        yield "on disk", shared.amount(entry.size)
    if entry.needed:
        yield "memory", f"at most {shared.amount(entry.needed)} at a window of {entry.settings.context:,} tokens"
    given = ", ".join(sorted(details.sheet.given)) or "empty"
    yield "settings", f"{one_line(str(sheet), 1000)} ({given})" if sheet != Path() else "-"


# --- pull and import --------------------------------------------------------------------------------------------------


@models.command()
@click.argument("name")
@click.option("--with-mmproj", is_flag=True, help="Fetch the projector too, with which the model sees images.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON; shows no progress.")
@click.pass_obj
def pull(workspace: Path | None, name: str, with_mmproj: bool, quiet: bool, as_json: bool) -> int:
    """Fetch a model of Hugging Face: OWNER/REPO, OWNER/REPO:QUANT, an address, or a short name.

    Without QUANT the best one of about four bits is taken. A stopped pull continues at the same place.
    """
    library = open_library(workspace)
    pulled = _fetched(library, name, with_mmproj=with_mmproj, quiet=quiet or as_json)
    kinds = [companion.kind for companion in library.companions() if companion.path in pulled.paths]
    done = "fetched" if pulled.fetched else "already there:"
    found = _print_added(library, pulled.paths, done, kinds[0] if kinds else "other", as_json, fetched=pulled.fetched)
    if found and not as_json and pulled.choice.projectors and not with_mmproj:
        projector = one_line(pulled.choice.projectors[0].name)
        click.echo(f"- it can see images with {projector}: lmagent models pull {name} --with-mmproj", err=True)
    return 0


@models.command("import")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--link", "way", flag_value="link", help="Leave the file where it is, and link to it.")
@click.option("--copy", "way", flag_value="copy", help="Copy the file (the default).")
@click.option("--move", "way", flag_value="move", help="Move the file.")
@click.option("--name", default="", help="Name for the model; without it, the file's name.")
@shared.json_option
@click.pass_obj
def import_(workspace: Path | None, path: Path, way: Any, name: str, as_json: bool) -> int:
    """Take a GGUF file into the library; of a model in parts, name any."""
    library = open_library(workspace)
    facts, paths = take(path.absolute(), library.folder, way or "copy", name)
    _print_added(library, paths, "imported", facts.kind, as_json, is_model=facts.kind not in NO_MODELS)
    return 0


def _print_added(
    library: Library,
    paths: tuple[Path, ...],
    done: str,
    kind: str,
    as_json: bool,
    *,
    is_model: bool = True,
    **more: Any,
) -> bool:
    """Report a file that was added; return whether it is a model by itself."""
    details = _at(library, paths[0]) if is_model else None
    files = list(map(str, paths))
    if details is None:
        if as_json:
            shared.print_json({"name": "", "kind": kind, "paths": files})
        else:
            click.echo(f"{done} {one_line(paths[0].name, 400)}: no model by itself but a file of the kind: {kind}")
        return False
    entry = details.entry
    if as_json:
        facts = {"size": entry.size, "needed": entry.needed, "broken": entry.broken}
        kind = details.facts.kind if details.facts is not None else ""
        shared.print_json({"name": entry.name, "kind": kind, "paths": files, **facts, **more})
    elif entry.broken:
        click.echo(f"{done} {entry.name}, but it cannot be loaded: {one_line(entry.broken, 400)}")
    else:
        needs = f"({shared.amount(entry.size)}, needs {shared.amount(entry.needed)} of memory)"
        click.echo(f"{done} {entry.name} {needs}\n  → lmagent -m {entry.name}")
    return True


def download(library: Library, name: str) -> str:
    """Fetch a model and return its name in the library. Raises LmagentError if it cannot be fetched or loaded."""
    details = _at(library, _fetched(library, name).paths[0])
    if details is None or details.entry.broken:
        why = details.entry.broken if details is not None else "it is no model"
        raise ModelServerError(f"{name} cannot be loaded: {why}", status=422, code="model_broken")
    return details.entry.name


def _fetched(library: Library, name: str, *, with_mmproj: bool = False, quiet: bool = False) -> PulledModel:
    shown = Quiet() if quiet else Bar() if sys.stderr.isatty() else ProgressLines()
    try:
        return anyio.run(_fetch, library.folder, name, with_mmproj, shown)
    except KeyboardInterrupt:
        shown.close()
        click.echo("stopped; the downloaded part is kept, and the same command resumes it", err=True)
        raise
    finally:
        shown.close()


async def _fetch(folder: Path, name: str, with_mmproj: bool, shown: DownloadProgress) -> PulledModel:
    transport = HttpTransport()
    try:
        return await Puller(ModelHub(transport, os.environ), folder, Ports(shown)).pull(name, with_mmproj=with_mmproj)
    finally:
        await transport.aclose()


def _at(library: Library, path: Path) -> Details | None:
    """Return the model of this file, also by another name of the file; None for a file that is no model by itself."""
    for details in library.all():
        if details.entry.path == path or (details.facts is not None and path in details.facts.parts):
            return details
    found = [one for one in library.all() if one.entry.path.exists() and path.exists()]
    return next((details for details in found if details.entry.path.samefile(path)), None)


class Quiet:
    """The progress of a download that shows nothing."""

    def begin(self, name: str, size: int, have: int) -> None: ...

    def advance(self, count: int) -> None: ...

    def note(self, text: str) -> None: ...

    def close(self) -> None: ...


class ProgressLines(Quiet):
    def __init__(self) -> None:
        self._name = ""
        self._size = self._have = self._shown = 0

    def begin(self, name: str, size: int, have: int) -> None:
        self._name, self._size, self._have = name, max(size, 1), have
        self._shown = have * 100 // self._size // STEP * STEP
        click.echo(f"{name}: {have / 1e6:,.0f} of {size / 1e6:,.0f} MB", err=True)

    def advance(self, count: int) -> None:
        self._have += count
        percent = self._have * 100 // self._size
        if percent >= self._shown + STEP:
            self._shown = percent // STEP * STEP
            click.echo(f"{self._name}: {self._shown} %", err=True)

    def note(self, text: str) -> None:
        click.echo(one_line(text, 2000), err=True)


class Bar(Quiet):
    """A bar on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.progress import TransferSpeedColumn as SpeedColumn

        name = TextColumn("{task.description}", markup=False)
        columns = (name, BarColumn(), DownloadColumn(), SpeedColumn(), TimeRemainingColumn())
        self._bar: Progress = Progress(*columns, console=Console(stderr=True, markup=False))
        self._task: TaskID | None = None
        self._name = ""

    def begin(self, name: str, size: int, have: int) -> None:
        if self._task is not None and name == self._name:
            self._bar.reset(self._task, total=size, completed=have)
            return
        self._bar.start()
        self._name = name
        self._task = self._bar.add_task(name, total=size, completed=have)

    def advance(self, count: int) -> None:
        if self._task is not None:
            self._bar.advance(self._task, count)

    def note(self, text: str) -> None:
        self._bar.console.print(one_line(text, 2000), highlight=False)

    def close(self) -> None:
        self._bar.stop()


# --- what this machine can run ----------------------------------------------------------------------------------------


@models.command()
@shared.json_option
@click.pass_obj
def recommend(workspace: Path | None, as_json: bool) -> int:
    """Say which models fit the memory of this machine: of those that are there, and of well-known ones."""
    memory = machine_memory()
    good = recommended(memory.total)
    there = open_library(workspace).all()
    own = [details.entry for details in there if not details.entry.broken and _fits(details, memory)]
    if as_json:
        names = [entry.name for entry in own]
        shared.print_json({"memory": memory, "there": names, "suggestions": good, "note": NOTE})
        return 0
    click.echo(f"memory: {shared.amount(memory.total)}, {shared.amount(memory.free)} free now{_bound(memory)}")
    for entry in own:
        click.echo(f"already here, and fits: {entry.name} (needs {shared.amount(entry.needed)})")
    if not good:
        smallest = SUGGESTIONS[0]
        click.echo(
            f"even {smallest.name} takes {shared.amount(smallest.bytes)}; name a model on another machine instead"
        )
        click.echo('  → a file NAME.toml with upstream = "http://HOST:PORT/v1" in the library\'s folder; or --base-url')
        return 0
    width = max(len(item.name) for item in good)
    click.echo(f"  {'NAME':<{width}}  {'DOWNLOAD':>8}  {'MEMORY':>7}  GOOD FOR")
    for item in good:
        click.echo(f"  {item.name:<{width}}  {item.download:>5.1f} GB  {shared.amount(item.bytes):>7}  {item.text}")
    click.echo(f"  → lmagent models pull {good[0].name}\n{NOTE}")
    return 0


@models.command()
@shared.json_option
@click.pass_obj
def doctor(workspace: Path | None, as_json: bool) -> int:
    """Check the engine, its devices, the memory and the folders of models."""
    library = open_library(workspace)
    memory, engine, there = machine_memory(), ask_engine(), library.all()
    layers, folders = _layers(there, engine), _folders(library)
    broken = [details for details in there if details.entry.broken]
    if as_json:
        answer: dict[str, Any] = {
            "engine": engine,
            "memory": memory,
            "folders": folders,
            "gpu_layers": [{"name": name, "fit": fit, "of": of} for name, fit, of in layers],
            "broken": [{"name": item.entry.name, "why": item.entry.broken, "fix": item.fix} for item in broken],
        }
        shared.print_json(answer)
        return 1 if engine.problem else 0
    _print_engine(engine)
    mark = "✓" if memory.total else "!"
    click.echo(f"{mark} memory   {shared.amount(memory.total)}, {shared.amount(memory.free)} free{_bound(memory)}")
    for name, path, count in folders:
        click.echo(f"✓ models   {count} of {name} in {one_line(path, 1000)}")
    for name, fit, of in layers:
        click.echo(f"✓ gpu      {name}: {fit} of {of} layers fit")
    for details in broken:
        _print_broken(f"✗ {details.entry.name}:", details)
    return 1 if engine.problem else 0


def _bound(memory: Memory) -> str:
    return " (bounded by the container)" if memory.limit == "container" else ""


def _print_engine(engine: EngineReport) -> None:
    if engine.problem:
        click.echo(f"✗ engine   {one_line(engine.problem, 400)}\n  → {engine.fix}")
        return
    click.echo(f"✓ engine   xllamacpp {engine.version}")
    for device in engine.devices:
        room = f", {shared.amount(device.free)} of {shared.amount(device.total)} free" if device.total else ""
        click.echo(f"✓ device   {one_line(device.name)}: {one_line(device.description)}{room}")
    if not engine.gpus:
        click.echo("! gpu      this build of the engine sees no graphics card; builds that do: docs/models.md")
    click.echo(f"  {one_line(engine.system, 400)}")


def _layers(there: Sequence[Details], engine: EngineReport) -> list[tuple[str, int, int]]:
    """Return model, layers that fit the graphics cards, and all its layers."""
    free = [device.free for device in engine.gpus]
    return [
        (item.entry.name, estimate_gpu_layers(item.facts, item.entry.settings, free), item.facts.layers + 1)
        for item in there
        if free and item.facts is not None and not item.entry.broken
    ]


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
@shared.json_lines_option
def ps(as_json: bool) -> int:
    """Show the models that are loaded."""
    running = Control(server_folder()).get("/api/ps")["models"]
    if as_json:
        shared.print_json(*running)
    else:
        print_running(running)
        if not running:
            click.echo("no model is loaded")
    return 0


@models.command()
@click.argument("name")
@shared.json_option
def load(name: str, as_json: bool) -> int:
    """Load a model now; lifts the pause of one that crashed too often."""
    return _change("/api/load", name, as_json=as_json)


@models.command()
@click.argument("name")
@shared.json_option
def unload(name: str, as_json: bool) -> int:
    """Unload a model once its requests are done."""
    return _change("/api/unload", name, as_json=as_json)


def _change(path: str, name: str, *, as_json: bool) -> int:
    model = Control(server_folder()).post(path, name)
    if as_json:
        shared.print_json(model)
        return 0
    took = f" in {model['loaded_s']:.1f} s, {shared.amount(model['memory'])}" if model["state"] == "ready" else ""
    click.echo(f"{model['name']}: {model['state']}{took}")
    return 0
