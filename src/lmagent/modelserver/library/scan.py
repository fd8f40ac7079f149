"""Scan: the model files on the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from lmagent.modelserver.library.facts import GgufFacts, parts_of, read_facts, split_of
from lmagent.modelserver.library.foreign import lmstudio_folders, ollama_folder, ollama_models, walk
from lmagent.modelserver.library.names import short_name
from lmagent.modelserver.spec import Engine, ModelServerError

Stamp = tuple[str, int, int]
"""A file as it was: path, bytes, nanoseconds of its last change."""


class FoundModel(Struct, frozen=True):
    """A file or folder that may be a model."""

    stem: str  # what its file is called
    name: str
    path: Path  # the file, or the folder
    source: str  # "library", "lmstudio" or "ollama"
    engine: Engine = "llama"  # what runs it
    facts: GgufFacts | None = None  # what its header says
    problem: str = ""  # why it cannot be used
    fix: str = ""  # what to do about that
    projector: Path | None = None  # the projector that belongs to it
    context: int = 0  # tokens of the window that Ollama's parameters ask for; 0 if they do not
    note: str = ""  # something to know about it


class DiskSnapshot(Struct, frozen=True):
    """The files at one moment; equal `stamps` mean that nothing changed."""

    stamps: tuple[Stamp, ...]  # every file that counts; equal stamps mean that nothing changed
    library: tuple[Path, ...]  # files in the library
    studios: tuple[tuple[Path, tuple[Path, ...]], ...]  # LM Studio's folders with their files
    ollama: Path | None  # Ollama's folder, if there is one


def look(folder: Path, env: Mapping[str, str]) -> DiskSnapshot:
    """List the files without reading them."""
    library = _relevant(walk(folder))
    studios = tuple((studio, _relevant(walk(studio))) for studio in lmstudio_folders(env))
    ollama = ollama_folder(env)
    watched = [*library, *(file for _, files in studios for file in files)]
    if ollama is not None:
        watched += [ollama / "blobs", *walk(ollama / "manifests")]
    return DiskSnapshot(tuple(sorted(map(stamp, watched))), library, studios, ollama)


def _relevant(files: Iterable[Path]) -> tuple[Path, ...]:
    wanted = (".gguf", ".toml", ".safetensors", "config.json", ".index.json")
    return tuple(sorted(file for file in files if file.name.lower().endswith(wanted) and not file.name.startswith(".")))


def stamp(path: Path) -> Stamp:
    """Return the state of a file; its size is -1 if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return str(path), -1, 0
    return str(path), status.st_size, status.st_mtime_ns


class ModelScanner:
    """A reader of headers, which reads a header again only if its file changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Stamp, ...], GgufFacts | ModelServerError] = {}

    def models(self, folder: Path, seen: DiskSnapshot) -> list[FoundModel]:
        """Return all that may be models, the library's own first, and each file once."""
        before, self._known = self._known, {}
        found = self._ggufs(seen.library, "library", before, root=folder)
        found += _checkpoints(seen.library)
        for root, files in seen.studios:
            found += self._ggufs(files, "lmstudio", before, root=root)
        if seen.ollama is not None:
            found += self._ollama(seen.ollama, before)
        return _once(found)

    def _ggufs(self, files: Iterable[Path], source: str, before: _Known, *, root: Path) -> list[FoundModel]:
        groups: dict[tuple[Path, str, int], Path] = {}
        for file in files:
            if file.name.lower().endswith(".gguf"):
                stem, _, count = split_of(file)
                groups.setdefault((file.parent, stem.lower(), count), file)
        found: list[FoundModel] = []
        for file in groups.values():
            stem = split_of(file)[0]
            facts = self._facts(file, before)
            item = FoundModel(stem, short_name(stem), file, source)
            found.append(_read(item, facts))
        return _with_projectors(found, root)

    def _ollama(self, folder: Path, before: _Known) -> list[FoundModel]:
        found: list[FoundModel] = []
        for model in ollama_models(folder):
            item = FoundModel(model.name, short_name(model.name), model.path, "ollama", context=model.context)
            if model.problem:
                found.append(_changed(item, problem=model.problem))
                continue
            item = _read(_changed(item, projector=model.projector), self._facts(model.path, before))
            if model.template and item.facts is not None and not item.facts.template:
                note = "its template is of Ollama's own kind; the engine takes ChatML unless settings name a template"
                item = _changed(item, note=note)
            found.append(item)
        return found

    def _facts(self, file: Path, before: _Known) -> GgufFacts | ModelServerError:
        try:
            parts = parts_of(file)
        except (OSError, ModelServerError):
            parts = (file,)
        key = (stamp(file), *map(stamp, parts))
        known = before.get(key) or self._known.get(key)
        if known is None or isinstance(known, ModelServerError):
            try:
                known = read_facts(file)
            except ModelServerError as error:
                known = error
        self._known[key] = known
        return known


_Known = dict[tuple[Stamp, ...], GgufFacts | ModelServerError]


def _read(item: FoundModel, facts: GgufFacts | ModelServerError) -> FoundModel:
    if isinstance(facts, ModelServerError):
        return _changed(item, problem=facts.message, fix=facts.fix)
    return _changed(item, facts=facts, path=facts.path)


def _changed(item: FoundModel, **changes: object) -> FoundModel:
    from msgspec.structs import replace

    return replace(item, **changes)


def _with_projectors(found: list[FoundModel], root: Path) -> list[FoundModel]:
    """Give a projector to the model that is alone with it in a folder."""
    by_folder: dict[Path, list[Path]] = {}
    for item in found:
        if item.facts is not None and item.facts.kind == "projector" and item.path.parent != root:
            by_folder.setdefault(item.path.parent, []).append(item.path)
    return [
        _changed(item, projector=there[0])
        if item.facts is not None
        and item.facts.kind == "chat"
        and len(there := by_folder.get(item.path.parent, [])) == 1
        else item
        for item in found
    ]


def _checkpoints(files: Iterable[Path]) -> list[FoundModel]:
    folders = {file.parent for file in files if file.name == "config.json"}
    weights = {file.parent for file in files if file.name.lower().endswith(".safetensors")}
    return [
        FoundModel(folder.name, short_name(folder.name), folder, "library", engine="transformers")
        for folder in sorted(folders & weights)
    ]


def _once(found: list[FoundModel]) -> list[FoundModel]:
    """Leave out links to files that are listed already; two names of Ollama's for one blob stay."""
    owners: dict[tuple[int, int], str] = {}
    kept: list[FoundModel] = []
    for item in found:
        with contextlib.suppress(OSError):
            status = os.stat(item.path)
            identity = (status.st_dev, status.st_ino)
            if identity in owners and not owners[identity] == item.source == "ollama":
                continue
            owners[identity] = item.source
        kept.append(item)
    return kept
