"""Pull: choose a model in a repository of a hub, and fetch it into the library."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from lmagent.modelserver.library.download import FileDownload, Ports, gigabytes, is_there, part_of, unwritable
from lmagent.modelserver.library.facts import split_of
from lmagent.modelserver.library.foreign import MAX_DEPTH
from lmagent.modelserver.library.hub import REPO, HubFile, ModelHub
from lmagent.modelserver.library.quant import PREFERENCE, quant_in
from lmagent.modelserver.library.suggestions import SUGGESTIONS
from lmagent.modelserver.spec import ModelServerError
from lmagent.store.files import make_private

_ADDRESS = re.compile(r"(?:https?://[^/]+/|hf\.co/|huggingface\.co/)(.+)", re.IGNORECASE)
SHOWN = 30


class WantedModel(Struct, frozen=True):
    repo: str  # `OWNER/REPO`
    variant: str = ""  # quantisation, or a file; "" for the best


class Variant(Struct, frozen=True):
    """One of the models of a repository."""

    name: str  # of its file, without part and `.gguf`
    quant: str  # its quantisation, as its name says
    files: tuple[HubFile, ...]  # its parts, in order

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class ModelChoice(Struct, frozen=True):
    """The files that are fetched, and the alternatives."""

    chosen: Variant  # the model
    others: tuple[Variant, ...]  # the other models of the repository
    projectors: tuple[HubFile, ...]  # projectors, the best one first


def wanted(name: str) -> WantedModel:
    """Understand `OWNER/REPO[:QUANT]`, an address of a repository or a file, or a suggestion's short name."""
    text = name.strip().rstrip("/")
    address = _ADDRESS.fullmatch(text)
    text = address[1].partition("?")[0] if address else text
    parts = text.split("/")
    if len(parts) > 4 and parts[2] in ("blob", "resolve", "raw"):
        text = f"{parts[0]}/{parts[1]}:{'/'.join(parts[4:])}"
    elif len(parts) > 2 and address and parts[2] == "tree":
        text = f"{parts[0]}/{parts[1]}"
    repo, _, variant = text.partition(":")
    for suggestion in SUGGESTIONS:
        if repo.lower() == suggestion.name:
            return WantedModel(suggestion.repo, variant or suggestion.quant)
    if REPO.fullmatch(repo) and ".." not in repo and "--" not in repo:
        return WantedModel(repo, variant)
    shorts = ", ".join(suggestion.name for suggestion in SUGGESTIONS)
    fix = f"write OWNER/REPO or OWNER/REPO:QUANT as on Hugging Face, or one of: {shorts}"
    raise ModelServerError(f"{name!r} is not the name of a repository", status=400, code="bad_name", fix=fix)


def choose(repo: str, files: Sequence[HubFile], variant: str) -> ModelChoice:
    """Choose a model by quantisation, file, or a unique part of a file's name; "" takes the best by `PREFERENCE`."""
    ggufs = [file for file in files if file.name.lower().endswith(".gguf")]
    projectors = sorted((file for file in ggufs if "mmproj" in file.name.lower()), key=_projector_rank)
    variants = _variants([file for file in ggufs if "mmproj" not in file.name.lower() and "imatrix" not in file.name])
    if not variants:
        fix = f"look for one that has: {repo}-GGUF, or the repositories that Hugging Face lists as its quantisations"
        raise ModelServerError(f"{repo} has no GGUF", status=400, code="no_gguf", fix=fix)
    hits = _matching(variants, variant) if variant else variants
    if not hits:
        raise _error(f"{repo} has no {variant!r}", variants)
    best = min(_rank(hit) for hit in hits)
    chosen, *more = [hit for hit in hits if _rank(hit) == best]
    if more:
        raise _error(f"several models of {repo} fit" + (f" {variant!r}" if variant else ""), [chosen, *more])
    numbers = [split_of(Path(file.name))[1] for file in chosen.files]
    count = split_of(Path(chosen.files[0].name))[2]
    if numbers != list(range(1, count + 1)):
        text = f"{repo} has only {len(numbers)} of the {count} parts of {chosen.name}"
        raise ModelServerError(text, status=502, code="model_broken", fix="choose another quantisation")
    return ModelChoice(chosen, tuple(item for item in variants if item != chosen), tuple(projectors))


def _matching(variants: Sequence[Variant], asked: str) -> list[Variant]:
    low = asked.lower().removeprefix("ud-")
    stem = split_of(Path(asked))[0].lower()
    exact = [item for item in variants if item.name.lower() == stem or item.name.rpartition("/")[2].lower() == stem]
    same = [item for item in variants if item.quant.lower() == low]
    if asked.lower().startswith("ud-"):
        same = [item for item in same if "ud-" in item.name.lower()]
    elif len(same) > 1:
        same = [item for item in same if "ud-" not in item.name.lower()] or same
    return exact or same or [item for item in variants if asked.lower() in item.name.lower()]


def _variants(files: Sequence[HubFile]) -> list[Variant]:
    groups: dict[tuple[str, int], list[HubFile]] = {}
    for file in files:
        stem, _, count = split_of(Path(file.name))
        folder = file.path.rpartition("/")[0]
        groups.setdefault((f"{folder}/{stem}" if folder else stem, count), []).append(file)
    return [
        Variant(name, quant_in(name.rpartition("/")[2]), tuple(sorted(group, key=lambda file: file.name)))
        for (name, _), group in sorted(groups.items())
    ]


def _rank(variant: Variant) -> tuple[int, int]:
    place = PREFERENCE.index(variant.quant) if variant.quant in PREFERENCE else len(PREFERENCE)
    return place, int("ud-" in variant.name.lower())


def _projector_rank(file: HubFile) -> int:
    order = ("F16", "BF16", "Q8_0", "F32")
    quant = quant_in(file.name)
    return order.index(quant) if quant in order else len(order)


def _error(text: str, variants: Sequence[Variant]) -> ModelServerError:
    rows = [f"{item.quant or item.name} ({item.size / 1e9:.1f} GB, {item.name})" for item in variants[:SHOWN]]
    fix = "write OWNER/REPO:QUANT or OWNER/REPO:FILE with one of: " + ", ".join(rows)
    return ModelServerError(text, status=400, code="bad_name", fix=fix)


SPARE = 256 << 20  # bytes of the disk that are left free
_NAME = re.compile(r"[A-Za-z0-9_][\w .+()\[\],@=-]{0,200}", re.ASCII)


class PulledModel(Struct, frozen=True):
    paths: tuple[Path, ...]  # the files, the model's first one first
    fetched: bool  # whether anything had to be
    choice: ModelChoice
    repo: str  # the repository


class Puller:
    def __init__(
        self,
        hub: ModelHub,
        folder: Path,
        ports: Ports,
        *,
        free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
    ) -> None:
        self._hub = hub
        self._folder = folder
        self._ports = ports
        self._free = free

    async def pull(self, name: str, *, with_mmproj: bool = False) -> PulledModel:
        """Fetch a model, or the rest of it; keep its parts if it fails."""
        asked = wanted(name)
        choice = choose(asked.repo, await self._hub.files(asked.repo), asked.variant)
        files = list(choice.chosen.files)
        home = self._home(asked.repo, files[0])
        if with_mmproj and not choice.projectors:
            fix = "leave --with-mmproj out: this model does not see images"
            raise ModelServerError(f"{asked.repo} has no projector", status=400, code="no_projector", fix=fix)
        if with_mmproj:
            files.append(choice.projectors[0])
        targets = [home / _safe(file.name) for file in files]
        self._ports.progress.note(_described(choice))
        self._check_space(files, targets)
        fetched = False
        try:
            for file, target in zip(files, targets, strict=True):
                if not is_there(file, target):
                    make_private(home)
                    await FileDownload(self._hub, asked.repo, file, target, self._ports).run()
                    fetched = True
        except BaseException as error:
            remove_empty(home, self._folder)
            if isinstance(error, OSError):
                raise unwritable(home, error) from error
            raise
        return PulledModel(tuple(targets), fetched, choice, asked.repo)

    def _home(self, repo: str, file: HubFile) -> Path:
        parts = [*repo.split("/"), *file.path.split("/")[:-1]]
        if len(parts) > MAX_DEPTH:
            fix = "fetch it by hand, and take it in: lmagent models import FILE"
            text = f"{file.name[:80]!r} lies too deep in the folders of {repo}"
            raise ModelServerError(text, status=502, fix=fix)
        return self._folder.joinpath(*(_safe(part) for part in parts))

    def _check_space(self, files: Sequence[HubFile], targets: Sequence[Path]) -> None:
        missing = 0
        for file, target in zip(files, targets, strict=True):
            part = part_of(target)
            have = part.stat().st_size if part.is_file() else 0
            missing += 0 if is_there(file, target) else max(0, file.size - have)
        folder = self._folder
        while not folder.exists():
            folder = folder.parent
        free = self._free(folder)
        if missing and missing + SPARE > free:
            text = f"{gigabytes(missing)} are still to be fetched, and {self._folder} has {gigabytes(free)} free"
            fix = "make room, choose a smaller quantisation, or set AGENT_DATA_DIR to a folder on a larger disk"
            raise ModelServerError(text, status=507, code="disk_full", fix=fix)


def remove_empty(folder: Path, root: Path) -> None:
    """Remove the empty folders from this one up to `root`, which stays."""
    while root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _described(choice: ModelChoice) -> str:
    others = ", ".join(f"{item.quant or item.name} ({gigabytes(item.size)})" for item in choice.others)
    taken = f"downloading {choice.chosen.name} ({gigabytes(choice.chosen.size)})"
    return f"{taken}; there are also {others}" if others else taken


def _safe(name: str) -> str:
    """Return a hub's file name if it is safe on this disk."""
    if not _NAME.fullmatch(name) or name.endswith((".", " ")):
        fix = "fetch it by hand, and take it in: lmagent models import FILE"
        raise ModelServerError(f"the hub has a file with the odd name {name[:80]!r}", status=502, fix=fix)
    return name
