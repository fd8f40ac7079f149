"""Completion of slash commands and of @paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from lmagent.app.host import Host
from lmagent.app.slash import user_commands

MAX_PATHS = 5000
"""Files looked at for a completion; a larger workspace is completed in part."""

SKIPPED = frozenset({".git", ".lmagent", "node_modules", "__pycache__", ".venv"})


class ReplCompleter(Completer):
    """Completes `/name` at the start of a line and `@path` anywhere."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What fits before the cursor."""
        text = document.text_before_cursor
        if text.startswith("/") and " " not in text:
            yield from self._commands(text[1:])
            return
        word = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
        if word.startswith("@"):
            for path in matching_paths(self._host.workspace, word[1:]):
                yield Completion(f"@{path}", start_position=-len(word), display=path)

    def _commands(self, prefix: str) -> Iterator[Completion]:
        every = {**self._host.registry.commands, **user_commands(self._host.workspace)}
        for name, command in every.items():
            if name.startswith(prefix):
                yield Completion(f"/{name}", start_position=-len(prefix) - 1, display_meta=command.help)


def matching_paths(workspace: Path, part: str, limit: int = 50) -> list[str]:
    """Files of the workspace whose path contains `part`, those that begin with it first."""
    wanted = part.lower()
    hits = [path for path in _paths(workspace) if wanted in path.lower()]
    hits.sort(key=lambda path: (not path.lower().startswith(wanted), path))
    return hits[:limit]


def _paths(workspace: Path) -> Iterator[str]:
    seen = 0
    for folder, names, files in os.walk(workspace):
        names[:] = sorted(name for name in names if name not in SKIPPED)
        for name in sorted(files):
            seen += 1
            if seen > MAX_PATHS:
                return
            yield os.path.relpath(os.path.join(folder, name), workspace).replace(os.sep, "/")
