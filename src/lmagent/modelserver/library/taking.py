"""Taking: import of a model file into the library, and removal from it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from lmagent.modelserver.library.download import unwritable
from lmagent.modelserver.library.facts import GgufFacts, read_facts, split_of
from lmagent.modelserver.library.library import Details
from lmagent.modelserver.library.names import short_name
from lmagent.modelserver.library.pull import remove_empty
from lmagent.modelserver.spec import ModelServerError
from lmagent.store.files import make_private

Way = Literal["copy", "move", "link"]


def take(source: Path, folder: Path, way: Way, name: str = "") -> tuple[GgufFacts, tuple[Path, ...]]:
    """Import all parts of a GGUF file; return its facts and the new files."""
    facts = read_facts(source)
    parts = facts.parts
    stem = _stem(source, facts, name)
    targets = [folder / f"{stem}-{number:05}-of-{len(parts):05}.gguf" for number in range(1, len(parts) + 1)]
    targets = targets if len(parts) > 1 else [folder / f"{stem}.gguf"]
    for target in targets:
        if os.path.lexists(target):
            fix = f"choose another: --name NAME, or: lmagent models rm {stem.lower()}"
            raise ModelServerError(f"there is a {target.name} in {folder} already", status=409, code="exists", fix=fix)
    try:
        make_private(folder)
        _put_all(parts, targets, way)
    except OSError as error:
        raise unwritable(folder, error) from error
    return facts, tuple(targets)


def removable(details: Details, folder: Path, there: Sequence[Details]) -> tuple[Path, ...]:
    """Return the files that go with a model: its parts, its settings, and its own projector."""
    entry, sheet = details.entry, details.sheet.path
    settings = (sheet,) if sheet != Path() and _inside(sheet, folder) else ()
    if entry.source in ("lmstudio", "ollama"):
        program = "LM Studio" if entry.source == "lmstudio" else "Ollama"
        fix = f"ollama rm {entry.name}" if entry.source == "ollama" else "remove it in LM Studio's list of models"
        text = f"{entry.name} belongs to {program} ({entry.path}); lmagent only reads there"
        raise ModelServerError(text, status=403, code="foreign", fix=fix)
    if entry.engine == "upstream" or entry.path == Path():
        return settings
    files = details.facts.parts if details.facts is not None else _broken_parts(entry.path)
    if entry.source != "library" or not all(_inside(file, folder) for file in files):
        text = f"{entry.name} does not lie in {folder}, but at {entry.path}"
        raise ModelServerError(text, status=403, code="foreign", fix="remove it there yourself, if you mean to")
    within = [item.entry.name for item in there if entry.path in item.entry.path.parents]
    if within:
        text = f"{entry.path} has other models in it: {', '.join(within[:8])}"
        raise ModelServerError(text, status=409, code="shared", fix="move them out of it, or remove them before")
    return (*files, *settings, *_projector(details, folder, there))


def _projector(details: Details, folder: Path, there: Sequence[Details]) -> tuple[Path, ...]:
    """Return the projector that is alone with this model and that no settings name."""
    name = details.entry.settings.mmproj
    users = [other for other in there if name and other.entry.settings.mmproj == name]
    path = Path(name)
    alone = name and len(users) == 1 and "mmproj" not in details.sheet.given
    return (path,) if alone and path.parent == details.entry.path.parent and _inside(path, folder) else ()


def remove(paths: Sequence[Path], folder: Path) -> int:
    """Remove files, links and folders, and folders that are empty then; return the bytes freed."""
    freed = 0
    for path in paths:
        try:
            if path.is_dir() and not path.is_symlink():
                freed += sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                shutil.rmtree(path)
            elif os.path.lexists(path):
                freed += path.lstat().st_size
                path.unlink()
        except OSError as error:
            raise unwritable(path, error) from error
        remove_empty(path.parent, folder)
    return freed


def _broken_parts(path: Path) -> tuple[Path, ...]:
    """Return the existing files of a model in parts that is not whole."""
    stem, _, count = split_of(path)
    if count < 2:
        return (path,)
    wanted = (stem.lower(), count)
    there = [file for file in path.parent.iterdir() if (split_of(file)[0].lower(), split_of(file)[2]) == wanted]
    return tuple(sorted(there))


def _inside(path: Path, folder: Path) -> bool:
    """Tell whether a path is in a folder after links on the way are followed; its own target does not count."""
    return Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(folder)) and path != folder


def _stem(source: Path, facts: GgufFacts, name: str) -> str:
    if name:
        stem = name.removesuffix(".gguf")
        if short_name(stem) != stem.lower() or ":" in stem:
            fix = "use letters, digits and . _ + -"
            raise ModelServerError(f"{name!r} is no name for a model", status=400, code="bad_name", fix=fix)
        return stem
    if source.name.lower().endswith(".gguf"):
        # A leading dot hides a file, and terminals obey control letters.
        stem = "".join(letter if letter.isprintable() else "-" for letter in split_of(source)[0]).lstrip(".")
        if stem:
            return stem
    if facts.name:  # a blob of Ollama's, whose file is called by its hash
        return short_name(f"{facts.name}-{facts.quantisation}").replace(":", "-")
    raise ModelServerError(f"{source.name} is no name for a model", status=400, code="bad_name", fix="add: --name NAME")


def _put_all(parts: Sequence[Path], targets: Sequence[Path], way: Way) -> None:
    """Import all parts or none: take back those that have come if one fails."""
    done: list[tuple[Path, Path]] = []
    try:
        for part, target in zip(parts, targets, strict=True):
            _put(part, target, way)
            done.append((part, target))
    except BaseException:
        for part, target in done:
            if part.exists():
                target.unlink(missing_ok=True)
            else:
                shutil.move(target, part)
        raise


def _put(part: Path, target: Path, way: Way) -> None:
    """Import one file, which is whole once it has its name."""
    if way == "link":
        try:
            os.symlink(part.resolve(), target)
        except OSError:  # Windows lets not everybody link by name; a second name on the same disk needs no right
            os.link(part, target)
        return
    if way == "move":
        with suppress(OSError):  # another disk
            os.rename(part, target)
            return
    growing = target.with_name(target.name + ".part")
    try:
        shutil.copyfile(part, growing)
        os.replace(growing, target)
    except BaseException:
        growing.unlink(missing_ok=True)
        raise
    if way == "move":
        part.unlink()
