"""The file with the list."""

from __future__ import annotations

import os
from pathlib import Path

from todo import line
from todo.item import Item


class Store:
    """Reads and writes the whole list; a write replaces the file in one step."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> list[Item]:
        """All items, in the order of the file; none if there is no file."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [line.parse(text) for text in lines if text.strip()]

    def save(self, items: list[Item]) -> None:
        """Replace the list."""
        text = "".join(f"{line.write(item)}\n" for item in items)
        part = self.path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        os.replace(part, self.path)
