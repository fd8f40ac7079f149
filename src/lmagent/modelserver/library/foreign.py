"""Foreign: the models of LM Studio and Ollama, used where they are, read only.

LM Studio: `models/PUBLISHER/REPO/FILE.gguf`, as its documentation has it. Ollama: `manifests/HOST/NAMESPACE/MODEL/TAG`
is a JSON manifest as container images have it; the layers are in `blobs/sha256-HEX` (ollama, `server/manifest.go`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from lmagent.config.paths import home_dir
from lmagent.core.decoding import decode_json
from lmagent.modelserver.library.facts import GgufFacts
from lmagent.modelserver.library.names import short_name
from lmagent.modelserver.spec import Engine

MODEL = "application/vnd.ollama.image.model"
PROJECTOR = "application/vnd.ollama.image.projector"
TEMPLATE = "application/vnd.ollama.image.template"
PARAMS = "application/vnd.ollama.image.params"
MAX_MANIFEST = 1 << 20
MAX_POINTER = 4096
MAX_DEPTH = 8
MAX_FILES = 20_000

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class FoundModel(Struct, frozen=True):
    """A file or folder that may be a model."""

    stem: str  # what its file is called; of Ollama's, `MODEL` or `MODEL:TAG`
    name: str
    path: Path  # the file, or the folder
    source: str  # "library", "lmstudio" or "ollama"
    engine: Engine = "llama"  # what runs it
    facts: GgufFacts | None = None  # what its header says
    problem: str = ""  # why it cannot be used; empty if nothing speaks against it
    fix: str = ""  # what to do about that
    projector: Path | None = None  # the projector that belongs to it
    context: int = 0  # tokens of the window that Ollama's parameters ask for; 0 if they do not
    note: str = ""  # something to know about it
    template: bool = False  # whether it has a template of Ollama's own kind (Go), which no other engine reads


class _Layer(Struct):
    mediaType: str = ""
    digest: str = ""
    size: int = 0


class _Manifest(Struct):
    layers: list[_Layer] = []


class _Params(Struct):
    num_ctx: int = 0


def lmstudio_folders(env: Mapping[str, str]) -> list[Path]:
    """Return LM Studio's folders of models.

    `~/.lmstudio-home-pointer` has the path of a folder that was moved (lmstudio-js, `findLMStudioHome`).
    """
    home = home_dir(env)
    folders = [home / ".lmstudio/models", home / ".cache/lm-studio/models"]
    pointer = home / ".lmstudio-home-pointer"
    with suppress(OSError, ValueError):
        if os.path.isfile(pointer):
            with pointer.open(encoding="utf-8") as file:
                folders.insert(0, Path(file.read(MAX_POINTER).strip()) / "models")
    there = {os.path.realpath(folder): folder for folder in reversed(folders) if os.path.isdir(folder)}
    return [folder for folder in reversed(there.values()) if folder.is_absolute()]


def ollama_folder(env: Mapping[str, str]) -> Path | None:
    """Return Ollama's folder of models; None if it does not exist."""
    named = env.get("OLLAMA_MODELS", "")
    folder = Path(named) if named else home_dir(env) / ".ollama/models"
    return folder if os.path.isdir(folder / "manifests") else None


def ollama_models(folder: Path) -> Iterator[FoundModel]:
    """Yield Ollama's models by name; `problem` says why one cannot be used."""
    for manifest in sorted(walk(folder / "manifests")):
        parts = manifest.relative_to(folder / "manifests").parts
        if len(parts) < 3 or manifest.name.startswith("."):
            continue
        *_, model, tag = parts
        name = model if tag == "latest" else f"{model}:{tag}"
        yield _ollama_model(folder, manifest, name)


def _ollama_model(folder: Path, manifest: Path, name: str) -> FoundModel:
    found = FoundModel(name, short_name(name), manifest, "ollama")
    try:
        if manifest.stat().st_size > MAX_MANIFEST:
            raise ValueError("it is too large")
        layers = decode_json(manifest.read_bytes(), _Manifest).layers
    except (OSError, ValueError, RecursionError) as error:
        return replace(found, problem=f"Ollama's manifest {manifest} cannot be read: {error}")
    by_kind = {layer.mediaType: layer for layer in reversed(layers)}
    if MODEL not in by_kind:
        return replace(found, problem=f"{name} has no GGUF; only Ollama itself runs it")
    blobs = {kind: _blob(folder, layer) for kind, layer in by_kind.items()}
    path, size = blobs[MODEL], by_kind[MODEL].size
    there = path.stat().st_size if path is not None and os.path.isfile(path) else 0
    if path is None or not there or (size and there != size):
        what = f"is missing or cut off ({there:,} of {size:,} bytes)"
        problem = f"the blob of {name} {what}: fetch it again with ollama pull {name}"
        return replace(found, path=path or manifest, problem=problem)
    projector = blobs.get(PROJECTOR)
    projector = projector if projector is not None and os.path.isfile(projector) else None
    context = _context(blobs.get(PARAMS))
    return replace(found, path=path, projector=projector, context=context, template=TEMPLATE in by_kind)


def _blob(folder: Path, layer: _Layer) -> Path | None:
    """Return a layer's file; None for an invalid digest, which must not become a file's name."""
    found = _DIGEST.fullmatch(layer.digest)
    return folder / "blobs" / f"sha256-{found[1]}" if found else None


def _context(params: Path | None) -> int:
    try:
        if params is None or not os.path.isfile(params) or params.stat().st_size > MAX_MANIFEST:
            return 0
        asked = decode_json(params.read_bytes(), _Params).num_ctx
    except (OSError, ValueError, RecursionError):
        return 0
    return asked if 256 <= asked <= 1 << 24 else 0


def walk(folder: Path) -> list[Path]:
    """Return the files below a folder, at most `MAX_FILES`, without hidden folders, and each folder once.

    Pipes, sockets and devices could be read without end, and are left out. A link to nowhere, in a circle, or to a
    forbidden place counts as a file, so that it is reported as broken.
    """
    files: list[Path] = []
    seen: set[tuple[int, int]] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        there = os.stat(place)
        if (there.st_dev, there.st_ino) in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add((there.st_dev, there.st_ino))
        deep = len(Path(place).relative_to(folder).parts) >= MAX_DEPTH
        folders[:] = [] if deep else [name for name in folders if not name.startswith(".")]
        paths = [Path(place, name) for name in names]
        files += [path for path in paths if os.path.isfile(path) or not os.path.exists(path)]
        if len(files) >= MAX_FILES:
            break
    return files[:MAX_FILES]
