"""File marks: what a session knows of the workspace's files, as a fold of what calls returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from msgspec import Struct, field

from lmagent.core.events import ToolFinished
from lmagent.core.tool import FileMark


class KeptWrite(Struct, frozen=True):
    """The text of a refused `write`, for when the model confirms it.

    Attributes:
        artifact: SHA-256 of the blob that holds the text.
        file: SHA-256 of the file that the text was to replace.
    """

    artifact: str
    file: str


class FileMarks(Struct):
    """The fold.

    Attributes:
        seen: files that the model was shown or wrote, by path; the order says which was touched last.
        kept: texts that wait for a confirmation, by path.
    """

    seen: dict[str, FileMark] = field(default_factory=dict[str, FileMark])
    kept: dict[str, KeptWrite] = field(default_factory=dict[str, KeptWrite])

    def apply(self, event: ToolFinished) -> None:
        """Take in what a call returned."""
        path, data = event.data.get("path"), event.data
        if not isinstance(path, str):
            path = ""
        if event.status == "ok":
            if path and isinstance(sha256 := data.get("sha256"), str):
                self._mark(path, sha256, changed=bool(data.get("changed")))
            if isinstance(shown := data.get("shown"), dict):
                for name, sha256 in cast("dict[object, object]", shown).items():
                    if isinstance(name, str) and isinstance(sha256, str):
                        self._mark(name, sha256)
            if data.get("changed"):
                self.kept.pop(path, None)
        elif event.artifact and path and isinstance(file := data.get("file"), str):
            self.kept[path] = KeptWrite(event.artifact, file)

    def _mark(self, path: str, sha256: str, *, changed: bool = False) -> None:
        before: Mapping[str, FileMark] = self.seen
        changed = changed or (path in before and before[path].changed)
        self.seen.pop(path, None)
        self.seen[path] = FileMark(sha256, changed)
