"""Memory folders of agent_computer: read into notes, and written in its shape.

knowledge.md, learnings.md    sections with a heading each, or lists
memory.db                     SQLite, table `memories`; its columns differ between versions
index.json                    the sessions that were reflected on
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from lmagent.core.errors import ConfigError, StoreError
from lmagent.memory.entries import Kind, MemoryEntry, one_line
from lmagent.memory.folder import live
from lmagent.memory.guard import LONGEST
from lmagent.memory.memory import MemoryRefused, MemoryScope
from lmagent.memory.reflector import reflected_marks
from lmagent.store.files import make_private

FILES: dict[str, Kind] = {"knowledge.md": "fact", "learnings.md": "learning"}
DATABASE = "memory.db"

_TEXTS = ("content", "text", "body", "memory")
_KINDS = ("category", "type", "kind", "source_type")
_ITEM = re.compile(r"[-*] +|\d+[.)] +")


class Imported(Struct, frozen=True):
    """The result of an import: entries taken, and a line for each text that was left, with the reason."""

    taken: int
    left: tuple[str, ...]


def import_folder(memory: MemoryScope, folder: Path) -> Imported:
    """Take over the memories of a folder. Raise ConfigError if it holds none of the known files."""
    found = [*_from_files(folder), *_from_database(folder / DATABASE)]
    if not found:
        names = ", ".join((*FILES, DATABASE))
        raise ConfigError(
            f"{folder} holds no memories: none of {names} is there", fix="name agent_computer's memory folder"
        )
    taken, left = 0, list[str]()
    for text, kind in dict(found).items():
        try:
            memory.store(text[:LONGEST], by="import", kind=kind)
            taken += 1
        except MemoryRefused as refused:
            left.append(f"{text[:60]}: {refused.message}")
    return Imported(taken, tuple(left))


def _from_files(folder: Path) -> Iterator[tuple[str, Kind]]:
    for name, kind in FILES.items():
        try:
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"{folder / name} cannot be read: {error.strerror}", fix="make it readable") from None
        for statement in _statements(text):
            yield statement, kind


def _statements(text: str) -> Iterator[str]:
    """Yield a section's items, or the whole section after its heading, each on one line."""
    heading, body = "", list[str]()
    for line in (*text.splitlines(), "# "):
        if line.startswith("#"):
            yield from _section(heading, body)
            heading, body = line.strip("# "), []
        else:
            body.append(line.strip())


def _section(heading: str, body: list[str]) -> Iterator[str]:
    lines = [line for line in body if line and not set(line) <= set("-=*")]
    items = [line for line in lines if _ITEM.match(line)]
    if items and len(items) == len(lines):
        yield from (one_line(_ITEM.sub("", item, count=1)) for item in items)
    elif lines:
        text = one_line(" ".join(lines))
        yield f"{heading}: {text}" if heading and not text.startswith(heading) else text


def _from_database(path: Path) -> Iterator[tuple[str, Kind]]:
    if not path.is_file():
        return
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.row_factory = sqlite3.Row
            rows = db.execute("SELECT * FROM memories").fetchall()
    except sqlite3.Error as error:
        raise StoreError(
            f"{path} cannot be read: {error}", fix="name a folder with a memory.db of agent_computer"
        ) from None
    for row in rows:
        values = {key: row[key] for key in row.keys()}  # noqa: SIM118 - a Row iterates over its values
        text, title = _text(values, _TEXTS), _text(values, ("title",))
        if text:
            learned = "learn" in _text(values, _KINDS)
            yield (
                (f"{title}: {text}" if title and not text.startswith(title) else text),
                "learning" if learned else "fact",
            )


def _text(values: dict[str, Any], names: Iterable[str]) -> str:
    return next((one_line(str(values[name])) for name in names if values.get(name)), "")


def export_folder(memory: MemoryScope, folder: Path) -> list[Path]:
    """Write the memories in agent_computer's shape; return the files. Raise StoreError if a file exists already."""
    entries = live(memory.entries())
    learned = [entry for entry in entries if entry.kind in ("learning", "reflection")]
    known = [entry for entry in entries if entry not in learned]
    index = {
        "processed_sessions": sorted(reflected_marks(memory.folder)),
        "exported_at": datetime.now().astimezone().isoformat(),
    }
    texts = {
        "knowledge.md": _markdown("Knowledge", known),
        "learnings.md": _markdown("Learnings", learned),
        "index.json": json.dumps(index, indent=2) + "\n",
    }
    try:
        make_private(folder)
        for name, text in texts.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except FileExistsError as error:
        raise StoreError(f"{error.filename} exists already", fix="name an empty folder") from None
    except OSError as error:
        raise StoreError(
            f"the memories cannot be written to {folder}: {error.strerror}", fix="name another folder"
        ) from None
    return [folder / name for name in texts]


def _markdown(title: str, entries: Iterable[MemoryEntry]) -> str:
    return "\n".join((f"# {title}", "", *(f"- {entry.text}" for entry in entries), ""))
