"""`lmagent models pull|import`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lmagent.cli.models_text import amount
from lmagent.cli.server import echo_json
from lmagent.tools.sanitize import one_line

if TYPE_CHECKING:
    from lmagent.modelserver.download import Progress
    from lmagent.modelserver.library import Details, Library
    from lmagent.modelserver.pull import Pulled

Open = Callable[[Path | None], "Library"]


def extend(group: click.Group, open_library: Open) -> None:
    @group.command()
    @click.argument("name")
    @click.option("--with-mmproj", is_flag=True, help="Fetch the projector too, with which the model sees images.")
    @click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
    @click.option("--json", "as_json", is_flag=True, help="The result as JSON; shows no progress.")
    @click.pass_context
    def pull(ctx: click.Context, name: str, with_mmproj: bool, quiet: bool, as_json: bool) -> int:
        """Fetch a model of Hugging Face: OWNER/REPO, OWNER/REPO:QUANT, an address, or a short name.

        Without QUANT the best one of about four bits is taken. A stopped pull continues at the same place.
        """
        return _pull(open_library(ctx.obj), name, with_mmproj=with_mmproj, quiet=quiet, as_json=as_json)

    @group.command("import")
    @click.argument("path", type=click.Path(path_type=Path))
    @click.option("--link", "way", flag_value="link", help="Leave the file where it is, and link to it.")
    @click.option("--copy", "way", flag_value="copy", help="Copy the file (the default).")
    @click.option("--move", "way", flag_value="move", help="Move the file.")
    @click.option("--name", default="", help="Name for the model; without it, the file's name.")
    @click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
    @click.pass_context
    def import_(ctx: click.Context, path: Path, way: Any, name: str, as_json: bool) -> int:
        """Take a GGUF file into the library; of a model in parts, name any."""
        from lmagent.modelserver.taking import take

        library = open_library(ctx.obj)
        facts, paths = take(path.absolute(), library.folder, way or "copy", name)
        if facts.kind in ("projector", "adapter", "other"):
            return _no_model("imported", facts.kind, paths, as_json=as_json)
        details = _at(library, paths[0])
        if details is None:
            return _no_model("imported", facts.kind, paths, as_json=as_json)
        if as_json:
            echo_json(_row(details, paths))
        else:
            click.echo(f"imported {details.entry.name}{_about(details)}")
        return 0


def _pull(library: Library, name: str, *, with_mmproj: bool, quiet: bool, as_json: bool) -> int:
    pulled = _fetched(library, name, with_mmproj=with_mmproj, quiet=quiet or as_json)
    details = _at(library, pulled.paths[0])
    if details is None:
        kinds = [companion.kind for companion in library.companions() if companion.path in pulled.paths]
        done = "fetched" if pulled.fetched else "already there:"
        return _no_model(done, kinds[0] if kinds else "other", pulled.paths, as_json=as_json)
    if as_json:
        echo_json({**_row(details, pulled.paths), "fetched": pulled.fetched})
        return 0
    click.echo(f"{'fetched' if pulled.fetched else 'already there:'} {details.entry.name}{_about(details)}")
    if pulled.choice.projectors and not with_mmproj:
        projector = one_line(pulled.choice.projectors[0].name)
        click.echo(f"- it can see images with {projector}: lmagent models pull {name} --with-mmproj", err=True)
    return 0


def download(library: Library, name: str) -> str:
    """Fetch a model and return its name in the library. Raises LmagentError if it cannot be fetched or loaded."""
    from lmagent.modelserver.spec import ModelServerError

    details = _at(library, _fetched(library, name).paths[0])
    if details is None or details.entry.broken:
        why = details.entry.broken if details is not None else "it is no model"
        raise ModelServerError(f"{name} cannot be loaded: {why}", status=422, code="model_broken")
    return details.entry.name


def _fetched(library: Library, name: str, *, with_mmproj: bool = False, quiet: bool = False) -> Pulled:
    import anyio

    from lmagent.cli.models_progress import progress

    shown = progress(quiet=quiet)
    try:
        return anyio.run(_fetch, library.folder, name, with_mmproj, shown)
    except KeyboardInterrupt:
        shown.close()
        click.echo("stopped; the downloaded part is kept, and the same command resumes it", err=True)
        raise
    finally:
        shown.close()


async def _fetch(folder: Path, name: str, with_mmproj: bool, shown: Progress) -> Pulled:
    from lmagent.modelserver.download import Ports
    from lmagent.modelserver.hub import Hub
    from lmagent.modelserver.pull import Puller
    from lmagent.providers.transport import HttpTransport

    transport = HttpTransport()
    try:
        return await Puller(Hub(transport, os.environ), folder, Ports(shown)).pull(name, with_mmproj=with_mmproj)
    finally:
        await transport.aclose()


def _no_model(done: str, kind: str, paths: tuple[Path, ...], *, as_json: bool) -> int:
    """Report a file that was added but is not a model with a name of its own."""
    if as_json:
        echo_json({"name": "", "kind": kind, "paths": [str(path) for path in paths]})
    else:
        click.echo(f"{done} {one_line(paths[0].name, 400)}: no model by itself but a file of the kind: {kind}")
    return 0


def _at(library: Library, path: Path) -> Details | None:
    """Return the model of this file; None for a file that is no model by itself."""
    for details in library.all():
        if details.entry.path == path or (details.facts is not None and path in details.facts.parts):
            return details
    # A file with a second name in the library is listed under that name.
    return next((details for details in library.all() if _same(details.entry.path, path)), None)


def _same(one: Path, other: Path) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _row(details: Details, paths: tuple[Path, ...]) -> dict[str, Any]:
    entry = details.entry
    return {
        "name": entry.name,
        "kind": details.facts.kind if details.facts is not None else "",
        "paths": [str(path) for path in paths],
        "size": entry.size,
        "needed": entry.needed,
        "broken": entry.broken,
    }


def _about(details: Details) -> str:
    entry = details.entry
    if entry.broken:
        return f", but it cannot be loaded: {one_line(entry.broken, 400)}"
    return f" ({amount(entry.size)}, needs {amount(entry.needed)} of memory)\n  → lmagent -m {entry.name}"
