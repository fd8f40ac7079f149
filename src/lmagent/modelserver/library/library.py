"""Library: all models that this machine can run or reach.

Its folder (`<agent_data_dir>/models`) has GGUF files in any depth, folders of Transformers models, and settings. The
models of LM Studio and Ollama are used where they are and never changed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from lmagent.modelserver.library import names
from lmagent.modelserver.library.facts import GgufFacts
from lmagent.modelserver.library.memory import context_of, needed_bytes
from lmagent.modelserver.library.scan import FoundModel, ModelScanner, Stamp, look, stamp
from lmagent.modelserver.library.sheet import Sheet, read_sheet
from lmagent.modelserver.spec import LoadOptions, ModelEntry, ModelServerError, ModelSettings

WHOLE_TYPES = ("f32", "f16", "bf16")  # types of the cache that are not quantised
TORCH_BYTES = 1 << 30  # memory that torch and its interpreter take besides the weights
NO_MODELS = ("projector", "adapter", "other")  # kinds of files that are no models by themselves


class Details(Struct, frozen=True):
    """A model with all that is known of it."""

    entry: ModelEntry  # as the pool knows it
    facts: GgufFacts | None = None  # what its header says; None for one that is not a GGUF, or is broken
    sheet: Sheet = Sheet()  # the settings file that counts
    fix: str = ""  # what to do if it is broken
    notes: tuple[str, ...] = ()  # things to know about it


class Library:
    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str] | None = None,
        *,
        extra: Sequence[ModelEntry] = (),
        ttl: float | None = None,
    ) -> None:
        self.folder = folder
        self._env = os.environ if env is None else env
        self._extra = tuple(extra)
        self._ttl = ttl  # for models whose own settings name none
        self._scanner = ModelScanner()
        self._lock = threading.Lock()
        self._stamps: tuple[Stamp, ...] | None = None
        self._named: tuple[Path, ...] = ()  # files that settings name, and that may come or go
        self._details: tuple[Details, ...] = ()
        self._companions: tuple[GgufFacts, ...] = ()

    def entries(self) -> Sequence[ModelEntry]:
        entries = [details.entry for details in self.all()]
        if self._ttl is None:
            return entries
        own = ModelSettings().ttl
        return [
            replace(entry, settings=replace(entry.settings, ttl=self._ttl)) if entry.settings.ttl == own else entry
            for entry in entries
        ]

    def find(self, name: str) -> ModelEntry:
        return names.find(self.entries(), name)

    def adjusted(self, entry: ModelEntry, options: LoadOptions) -> ModelEntry:
        """Return a model with other settings, and the memory that it needs then."""
        given = {name: value for name in options.__struct_fields__ if (value := getattr(options, name)) is not None}
        settings = replace(entry.settings, **given)
        facts = self.details(entry.name).facts
        more = needed_bytes(facts, settings) - needed_bytes(facts, entry.settings) if facts is not None else 0
        return replace(entry, settings=settings, needed=entry.needed + more)

    def details(self, name: str) -> Details:
        entry = self.find(name)
        return next(details for details in self.all() if details.entry.name == entry.name)

    def all(self) -> Sequence[Details]:
        with self._lock:
            seen = look(self.folder, self._env)
            if (*seen.stamps, *map(stamp, self._named)) != self._stamps:
                self._build(self._scanner.models(self.folder, seen), seen.library)
                self._stamps = (*seen.stamps, *map(stamp, self._named))
            return self._details

    def companions(self) -> Sequence[GgufFacts]:
        """Return the files that are no models by themselves: projectors, adapters, vocabularies."""
        self.all()
        return self._companions

    def _build(self, found: Sequence[FoundModel], files: Sequence[Path]) -> None:
        sheets = _Sheets(self.folder, files)
        taken: set[str] = set()
        made: list[Details] = []
        companions: list[GgufFacts] = []
        for item in found:
            if item.facts is not None and item.facts.kind in NO_MODELS:
                companions.append(item.facts)
                continue
            name = names.unique_name(item.name, item.source, taken)
            made.append(_local(item, name, sheets))
        made += [self._upstream(path, taken) for path in sheets.left()]
        made += [Details(entry) for entry in self._extra if entry.name not in taken]
        self._details = tuple(sorted(_with_drafts(made), key=lambda details: details.entry.name))
        self._companions = tuple(companions)
        settings = [details.entry.settings for details in made]
        self._named = tuple(Path(name) for each in settings for name in (each.template, each.mmproj) if name)

    def _upstream(self, path: Path, taken: set[str]) -> Details:
        """Read a settings file without a model here: it names one on another server, or is a mistake."""
        name = names.unique_name(names.short_name(path.stem), "settings", taken)
        entry = ModelEntry(name, "upstream", source="upstream")
        try:
            sheet = read_sheet(path)
        except ModelServerError as error:
            return Details(replace(entry, broken=error.message), fix=error.fix, sheet=Sheet(path))
        if not sheet.upstream:
            why = f"{path} has settings, but there is no model of that name"
            fix = 'rename the file to the name of a model (lmagent models list), or add: upstream = "http://HOST/v1"'
            return Details(replace(entry, engine="llama", source="library", broken=why), fix=fix, sheet=sheet)
        key = self._env.get(sheet.key_env, "") if sheet.key_env else ""
        model = sheet.upstream_model or path.stem
        entry = replace(entry, settings=sheet.settings, url=sheet.upstream, upstream=model, key=key)
        if sheet.key_env and not key:
            why = f"the variable {sheet.key_env}, which {path} names for the key, is not set"
            return Details(replace(entry, broken=why), fix=f"type: export {sheet.key_env}=KEY", sheet=sheet)
        return Details(entry, sheet=sheet)


class _Sheets:
    """The settings files of the library, and the models that they belong to.

    A settings file is beside the model's file under its name, or in the library's folder under the model's name; there
    a hyphen may replace the colon, for file systems that know none.
    """

    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        self._folder = folder
        self._there = {(file.parent, file.stem.lower()): file for file in files if file.suffix.lower() == ".toml"}
        self._used: set[Path] = set()

    def of(self, item: FoundModel, name: str) -> Path | None:
        places = [(item.path.parent, item.stem.lower()), (item.path.parent, name)]
        if item.engine == "transformers":
            places.append((item.path, item.stem.lower()))
        if item.source != "library":
            places = []
        places += [(self._folder, name), (self._folder, name.replace(":", "-"))]
        if name == item.name:
            places.append((self._folder, item.stem.lower()))
        path = next((self._there[place] for place in places if place in self._there), None)
        if path is not None:
            self._used.add(path)
        return path

    def left(self) -> list[Path]:
        """Return the files of the library's own folder that belong to no model in it."""
        return sorted(path for path in self._there.values() if path.parent == self._folder and path not in self._used)


def _local(item: FoundModel, name: str, sheets: _Sheets) -> Details:
    """Return the details of a model that is run here."""
    entry = ModelEntry(name, item.engine, item.path, source=item.source, size=max(0, stamp(item.path)[1]))
    path = sheets.of(item, name)
    sheet = Sheet()
    try:
        if path is not None:
            sheet = read_sheet(path)
            entry = replace(entry, settings=sheet.settings)
        if sheet.upstream:
            why = f"{path} names a server, but there is a model file of that name too"
            raise ModelServerError(why, status=422, code="bad_settings", fix="rename one of them")
        if item.problem:
            raise ModelServerError(item.problem, status=422, code="model_broken", fix=item.fix)
        return _loadable(item, entry, sheet)
    except ModelServerError as error:
        return Details(replace(entry, broken=error.message), facts=item.facts, sheet=sheet, fix=error.fix)


def _loadable(item: FoundModel, entry: ModelEntry, sheet: Sheet) -> Details:
    settings = entry.settings
    if item.context and "context" not in sheet.given:
        settings = replace(settings, context=item.context)
    if item.projector is not None and "mmproj" not in sheet.given:
        settings = replace(settings, mmproj=str(item.projector))
    for key in ("template", "mmproj"):
        file = getattr(settings, key)
        if file and not os.path.isfile(file):
            why = f"{sheet.path} names {file!r} as {key}, and there is no such file"
            raise ModelServerError(why, status=422, code="bad_settings", fix="the path counts from that file")
    if item.facts is None:
        size = sum(max(0, stamp(file)[1]) for file in item.path.glob("*.safetensors"))
        return Details(replace(entry, settings=settings, size=size, needed=size + TORCH_BYTES), sheet=sheet)
    facts = item.facts
    if facts.kind in ("embedding", "reranker") and "embedding" not in sheet.given:
        pooling = settings.pooling or ("rank" if facts.kind == "reranker" else "")
        settings = replace(settings, embedding=True, pooling=pooling)
    _check_cache(facts, settings, sheet)
    settings = replace(settings, context=context_of(facts, settings))
    needed = needed_bytes(facts, settings) + (os.path.getsize(settings.mmproj) if settings.mmproj else 0)
    entry = replace(entry, settings=settings, size=facts.size, needed=needed)
    return Details(entry, facts, sheet, notes=_notes(item, facts, entry))


def _check_cache(facts: GgufFacts, settings: ModelSettings, sheet: Sheet) -> None:
    """Check that heads fill whole blocks of 32 numbers, as the engine needs for a quantised cache."""
    for key, length in (("cache_type_k", facts.key_length), ("cache_type_v", facts.value_length)):
        if getattr(settings, key) not in WHOLE_TYPES and length % 32:
            why = f"{sheet.path}: {key} needs heads of a multiple of 32 numbers; they have {length}"
            raise ModelServerError(why, status=422, code="bad_settings", fix=f'set {key} = "f16", or leave it out')


def _notes(item: FoundModel, facts: GgufFacts, entry: ModelEntry) -> tuple[str, ...]:
    notes = [item.note] if item.note else []
    if facts.context and entry.settings.context > facts.context:
        notes.append(f"its window is set to {entry.settings.context:,} tokens, it was made for {facts.context:,}")
    if facts.kind == "chat" and not facts.template and not entry.settings.template and not item.note:
        notes.append("it has no chat template: a base model, or converted without one; the engine takes ChatML")
    elif facts.kind == "chat" and facts.template and not facts.tools and not entry.settings.template:
        notes.append("its template renders no tools: calls are made through the engine's general format")
    return tuple(notes)


def _with_drafts(made: Sequence[Details]) -> list[Details]:
    """Check the draft models, and count their memory."""
    usable = [details.entry for details in made if not details.entry.broken and details.entry.engine == "llama"]
    return [
        _with_draft(details, usable) if details.entry.settings.draft and details.entry in usable else details
        for details in made
    ]


def _with_draft(details: Details, usable: Sequence[ModelEntry]) -> Details:
    entry = details.entry
    try:
        draft = names.find([other for other in usable if other.name != entry.name], entry.settings.draft)
    except ModelServerError as error:
        why = f"{details.sheet.path} names a draft model: {error.message}"
        return replace(details, entry=replace(entry, broken=why), fix=error.fix)
    settings = replace(entry.settings, draft=draft.name)
    return replace(details, entry=replace(entry, settings=settings, needed=entry.needed + draft.needed))
