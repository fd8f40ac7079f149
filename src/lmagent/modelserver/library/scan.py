"""Scan: the model files on the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from lmagent.modelserver.library.facts import GgufFacts, parts_of, read_facts, split_of
from lmagent.modelserver.library.foreign import FoundModel, lmstudio_folders, ollama_folder, ollama_models, walk
from lmagent.modelserver.library.names import short_name
from lmagent.modelserver.spec import ModelServerError

Stamp = tuple[str, int, int]  # A file as it was: path, bytes, nanoseconds of its last change


class DiskSnapshot(Struct, frozen=True):
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
    except (OSError, ValueError):  # a name with a zero byte is no file's either
        return str(path), -1, 0
    return str(path), status.st_size, status.st_mtime_ns


class ModelScanner:
    """A reader of headers, which reads a header again only if its file changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Stamp, ...], GgufFacts] = {}

    def models(self, folder: Path, seen: DiskSnapshot) -> list[FoundModel]:
        """Return all that may be models, the library's own first, and each file once."""
        found = self._ggufs(seen.library, "library", folder)
        found += _checkpoints(seen.library)
        for root, files in seen.studios:
            found += self._ggufs(files, "lmstudio", root)
        if seen.ollama is not None:
            found += self._ollama(seen.ollama)
        return _once(found)

    def _ggufs(self, files: Iterable[Path], source: str, root: Path) -> list[FoundModel]:
        groups: dict[tuple[Path, str, int], Path] = {}
        for file in files:
            if file.name.lower().endswith(".gguf"):
                stem, _, count = split_of(file)
                groups.setdefault((file.parent, stem.lower(), count), file)
        stems = [(split_of(file)[0], file) for file in groups.values()]
        found = [self._read(FoundModel(stem, short_name(stem), file, source)) for stem, file in stems]
        return _with_projectors(found, root)

    def _ollama(self, folder: Path) -> list[FoundModel]:
        found: list[FoundModel] = []
        for model in ollama_models(folder):
            item = model if model.problem else self._read(model)
            if model.template and item.facts is not None and not item.facts.template:
                note = "its template is of Ollama's own kind; the engine takes ChatML unless settings name a template"
                item = replace(item, note=note)
            found.append(item)
        return found

    def _read(self, item: FoundModel) -> FoundModel:
        try:
            key = (stamp(item.path), *map(stamp, parts_of(item.path)))
            facts = self._known.get(key) or read_facts(item.path)
        except OSError as error:
            return replace(item, problem=f"{item.path} cannot be read: {error.strerror or error}")
        except ModelServerError as error:
            return replace(item, problem=error.message, fix=error.fix)
        self._known[key] = facts
        return replace(item, facts=facts, path=facts.path)


def _with_projectors(found: list[FoundModel], root: Path) -> list[FoundModel]:
    """Give a projector to the model that is alone with it in a folder."""
    by_folder: dict[Path, list[Path]] = {}
    for item in found:
        if item.facts is not None and item.facts.kind == "projector" and item.path.parent != root:
            by_folder.setdefault(item.path.parent, []).append(item.path)
    alone = {folder: there[0] for folder, there in by_folder.items() if len(there) == 1}
    return [
        replace(item, projector=alone.get(item.path.parent))
        if item.facts is not None and item.facts.kind == "chat"
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
