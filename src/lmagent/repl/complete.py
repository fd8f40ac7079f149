"""Completion of slash commands and of @paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from lmagent.app.host import Host
from lmagent.app.slash import all_commands

MAX_PATHS = 5000
"""Files looked at for a completion; a larger workspace is completed in part."""

SKIPPED = frozenset({".git", ".lmagent", "node_modules", "__pycache__", ".venv"})


class ReplCompleter(Completer):
    """Completes `/name` at the start of a line, and `@path` anywhere."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        word = _last_word(text)
        if word == text and word.startswith("/"):
            for name, command in all_commands(self._host).items():
                if name.startswith(word[1:]):
                    more = " " if command.usage and not command.usage.startswith("[") else ""
                    yield Completion(f"/{name}{more}", -len(word), display=f"/{name}", display_meta=command.help)
        elif word.startswith("@"):
            for path in matching_paths(self._host.workspace, word[1:]):
                yield Completion(f"@{path} ", -len(word), display=path)


def opens_menu(text: str) -> bool:
    """Whether the menu opens by itself after this text: it is the beginning of a command, or its last word a path."""
    word = _last_word(text)
    return word.startswith("@") or (word == text and word.startswith("/"))


def _last_word(text: str) -> str:
    return text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""


def matching_paths(workspace: Path, part: str, limit: int = 50) -> list[str]:
    """Return files of the workspace whose path contains `part`, those that begin with it first."""
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
