"""File marks: a session's knowledge of the workspace's files, as a fold of its calls' results."""

from __future__ import annotations

from msgspec import Struct, ValidationError, field

from lmagent.core.decoding import convert
from lmagent.core.events import ToolFinished
from lmagent.core.tool import FileMark


class _Data(Struct):
    """Data of the tools that touch files; all other data is ignored."""

    path: str = ""
    sha256: str = ""
    changed: bool = False
    shown: dict[str, str] = {}
    file: str = ""


class FileMarks(Struct):
    """The fold.

    Attributes:
        seen: files that the model was shown or wrote, by path, the last touched last.
        kept: refused writes that the model may confirm, by path: SHA-256 of the blob with the text, and of the file.
    """

    seen: dict[str, FileMark] = field(default_factory=dict[str, FileMark])
    kept: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def apply(self, event: ToolFinished) -> None:
        try:
            data = convert(event.data, _Data)
        except ValidationError:
            return
        if event.status != "ok":
            if event.artifact and data.file:
                self.kept[data.path] = (event.artifact, data.file)
            return
        if data.changed:
            self.kept.pop(data.path, None)
        for path, sha256 in (*data.shown.items(), (data.path, data.sha256)):
            if path and sha256:
                before = self.seen.pop(path, None)
                self.seen[path] = FileMark(sha256, data.changed or (before is not None and before.changed))
