"""Output: the output of commands on a terminal: its last lines, and all of it on request."""

from __future__ import annotations

import re

from lmagent.core import events as ev
from lmagent.tools.sanitize import printable

SHOWN = 8
"""Lines of a command's output that are shown under its call."""

LIVE = 4
"""Lines that are shown while the command runs."""

_KEPT = 8192
"""Characters of a running command's output that are kept."""


_CUT = re.compile(r"^\[… (.* left out); read on with read_artifact\(.*\) …\]$", re.MULTILINE)
"""Marks the missing middle of a long output, with advice for the model."""


class CommandOutput:
    """The output of the running commands, and of the last one that printed something.

    Attributes:
        last: the lines of that one.
        last_summary: its call.
        last_cut: the blob with all of it, if the middle of `last` is left out; else empty.
    """

    def __init__(self) -> None:
        self.last: list[str] = []
        self.last_summary = ""
        self.last_cut = ""
        self._live: dict[str, str] = {}

    def add(self, event: ev.ToolOutput) -> None:
        self._live[event.call_id] = (self._live.get(event.call_id, "") + event.text)[-_KEPT:]

    def live(self, call_id: str) -> list[str]:
        return _lines(self._live.get(call_id, ""))[-LIVE:]

    def finish(self, event: ev.ToolFinished, summary: str) -> list[str]:
        self._live.pop(event.call_id, None)
        lines = command_output(event)
        if lines:
            self.last, self.last_summary, self.last_cut = lines, summary, event.artifact or ""
        return lines

    def forget_running(self) -> None:
        self._live.clear()


def command_output(event: ev.ToolFinished) -> list[str]:
    """Return the lines that a command printed, without the notes to the model; empty if it runs no command."""
    notes: list[str] | None = event.data.get("notes")
    if notes is None or event.content == "(no output)":
        return []
    to_model = {line for note in notes for line in note.split("\n")}
    content = _CUT.sub(r"[… \1 …]", event.content) if event.artifact else event.content
    return _lines("\n".join(line for line in content.split("\n") if line not in to_model))


def _lines(text: str) -> list[str]:
    return printable(text).expandtabs().strip("\n").split("\n") if text.strip() else []
