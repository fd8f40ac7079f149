"""Names: the names of models, and the model that a user means by one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from lmagent.modelserver.spec import ModelEntry, ModelServerError

_ODD = re.compile(r"[^a-z0-9._:+-]+")
_SEPARATORS = re.compile(r"[^a-z0-9]+")
SHOWN = 8  # candidates that an error lists


def short_name(stem: str) -> str:
    """Return a name from the stem of a file: lower case, with only letters, digits and `._:+-`.

    The quantisation stays in it, so two quantisations of one model never have the same name.
    """
    return _plain(stem) or "model"


def _plain(text: str) -> str:
    return _ODD.sub("-", text.lower()).strip("-.")


def unique_name(name: str, origin: str, taken: set[str]) -> str:
    """Return the name, or `name@origin`, `name@origin-2`, … if it is taken; the first model keeps the name."""
    chosen, number = name, 1
    while chosen in taken:
        chosen = f"{name}@{origin}" + (f"-{number}" if number > 1 else "")
        number += 1
    taken.add(chosen)
    return chosen


def find(entries: Sequence[ModelEntry], asked: str) -> ModelEntry:
    """Return the model that a name means; exact, in another case, without `:latest` or `.gguf`, or by a unique part.

    All separators are equal in a part of a name (`qwen3:8b` finds `qwen3-8b-q4_k_m`), and a broken model is only found
    if no other fits.
    """
    by_name = {entry.name: entry for entry in entries}
    for spelling in (asked, *_spellings(asked)):
        if spelling in by_name:
            return by_name[spelling]
    part = _SEPARATORS.sub("-", _spellings(asked)[-1]).strip("-")
    hits = [entry for entry in entries if part and part in _SEPARATORS.sub("-", entry.name)]
    hits = [entry for entry in hits if not entry.broken] or hits
    if len(hits) == 1:
        return hits[0]
    if hits:
        names = ", ".join(entry.name for entry in hits[:SHOWN]) + (", …" if len(hits) > SHOWN else "")
        fix = "write more of the name of the one that you mean"
        raise ModelServerError(f"{asked!r} may be any of {names}", status=400, code="model_ambiguous", fix=fix)
    raise _missing(entries, asked)


def is_name_of(asked: str, entry: ModelEntry) -> bool:
    """Tell whether the whole name of a model was written, in one of the ways of other programs."""
    return entry.name in (asked, *_spellings(asked))


def _spellings(asked: str) -> list[str]:
    """Return the name as other programs write it, the shortest spelling last."""
    low = asked.strip().lower()
    bare = low.removesuffix(":latest").removesuffix(".gguf")
    last = bare.rpartition("/")[2]
    return [low, bare, _plain(bare), last, _plain(last)]


def _missing(entries: Sequence[ModelEntry], asked: str) -> ModelServerError:
    if not entries:
        fix = "fetch one: lmagent models recommend says which; lmagent models pull OWNER/REPO fetches it"
        return ModelServerError(
            f"there is no model {asked!r}, nor any other", status=404, code="model_not_found", fix=fix
        )
    near = difflib.get_close_matches(asked.lower(), [entry.name for entry in entries], 3, 0.5)
    fix = f"did you mean {' or '.join(near)}?" if near else "lmagent models list shows what there is"
    return ModelServerError(f"there is no model {asked!r}", status=404, code="model_not_found", fix=fix)
