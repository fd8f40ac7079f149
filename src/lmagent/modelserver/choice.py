"""Choice: which files of a repository are fetched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from lmagent.modelserver.facts import split_of
from lmagent.modelserver.hub import REPO, HubFile
from lmagent.modelserver.quant import PREFERENCE, quant_in
from lmagent.modelserver.spec import ModelServerError
from lmagent.modelserver.suggestions import SUGGESTIONS

_ADDRESS = re.compile(r"(?:https?://[^/]+/|hf\.co/|huggingface\.co/)(.+)", re.IGNORECASE)
SHOWN = 30


class Wanted(Struct, frozen=True):
    """What a person asked for.

    Attributes:
        repo: `OWNER/REPO`.
        variant: quantisation, or a file; "" for the best.
    """

    repo: str
    variant: str = ""


class Variant(Struct, frozen=True):
    """One of the models of a repository.

    Attributes:
        name: of its file, without part and `.gguf`.
        quant: its quantisation, as its name says.
        files: its parts, in order.
    """

    name: str
    quant: str
    files: tuple[HubFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(file.size for file in self.files)


class Choice(Struct, frozen=True):
    """What is fetched, and what else there would be.

    Attributes:
        chosen: the model.
        others: the other models of the repository.
        projectors: projectors, the best one first.
    """

    chosen: Variant
    others: tuple[Variant, ...]
    projectors: tuple[HubFile, ...]


def wanted(name: str) -> Wanted:
    """Understand `OWNER/REPO`, `OWNER/REPO:QUANT`, an address of a repository or a file, or a suggestion's short name.

    Raises:
        ModelServerError: it is none of these.
    """
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
            return Wanted(suggestion.repo, variant or suggestion.quant)
    if REPO.fullmatch(repo) and ".." not in repo and "--" not in repo:
        return Wanted(repo, variant)
    shorts = ", ".join(suggestion.name for suggestion in SUGGESTIONS)
    fix = f"write OWNER/REPO or OWNER/REPO:QUANT as on Hugging Face, or one of: {shorts}"
    raise ModelServerError(f"{name!r} is not the name of a repository", status=400, code="bad_name", fix=fix)


def choose(repo: str, files: Sequence[HubFile], variant: str) -> Choice:
    """Choose a model of a repository.

    Args:
        repo: its name, for messages.
        files: what is in it.
        variant: quantisation, file, or a unique part of a file's name; "" for the best by `quant.PREFERENCE`.

    Raises:
        ModelServerError: there is none, or it is not clear which.
    """
    ggufs = [file for file in files if file.name.lower().endswith(".gguf")]
    projectors = sorted((file for file in ggufs if "mmproj" in file.name.lower()), key=_projector_rank)
    variants = _variants([file for file in ggufs if "mmproj" not in file.name.lower() and "imatrix" not in file.name])
    if not variants:
        raise _no_gguf(repo, files)
    hits = _matching(variants, variant) if variant else variants
    if not hits:
        raise _error(f"{repo} has no {variant!r}", variants)
    if len(hits) > 1:
        best = min(_rank(hit) for hit in hits)
        ranked = [hit for hit in hits if _rank(hit) == best]
        if len(ranked) > 1 or (variant and not _is_family(hits, variant)):
            raise _error(f"several models of {repo} fit" + (f" {variant!r}" if variant else ""), ranked)
        hits = ranked
    chosen = hits[0]
    _complete(repo, chosen)
    return Choice(chosen, tuple(item for item in variants if item != chosen), tuple(projectors))


def _is_family(hits: Sequence[Variant], variant: str) -> bool:
    """Whether a family of quantisations was asked for (`q4`), of which the best may be taken."""
    return len({hit.quant for hit in hits}) > 1 and all(variant.lower() in hit.quant.lower() for hit in hits)


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


def _complete(repo: str, chosen: Variant) -> None:
    numbers = [split_of(Path(file.name))[1] for file in chosen.files]
    count = split_of(Path(chosen.files[0].name))[2]
    if numbers != list(range(1, count + 1)):
        text = f"{repo} has only {len(numbers)} of the {count} parts of {chosen.name}"
        raise ModelServerError(text, status=502, code="model_broken", fix="choose another quantisation")


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


def _no_gguf(repo: str, files: Sequence[HubFile]) -> ModelServerError:
    fix = f"look for one that has: {repo}-GGUF, or the repositories that Hugging Face lists as its quantisations"
    if any(file.name.endswith(".safetensors") for file in files):
        text = f"{repo} has no GGUF but safetensors, which the engine transformers runs"
        return ModelServerError(text, status=400, code="no_gguf", fix=fix)
    return ModelServerError(f"{repo} has no GGUF", status=400, code="no_gguf", fix=fix)
