"""Completion of slash commands, of their choices, and of @paths."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from pathlib import Path

from anyio import to_thread
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from lmagent.app.slash import Choice, SlashContext, all_commands
from lmagent.core.errors import LmagentError

MAX_PATHS = 5000
"""Files looked at for a completion; a larger workspace is completed in part."""

FRESH = 10.0
"""Seconds for which the choices of a command are kept."""

SKIPPED = frozenset({".git", ".lmagent", "node_modules", "__pycache__", ".venv"})


class ReplCompleter(Completer):
    """Completes `/name` at the start of a line, the choices of a command after it, and `@path` anywhere.

    `context`: returns the context of a command entered now.
    """

    def __init__(self, context: Callable[[], SlashContext]) -> None:
        self._context = context
        self._offered: dict[str, tuple[float, Sequence[Choice]]] = {}

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Return nothing: listing the choices of a command takes a while."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        text = document.text_before_cursor
        if text.startswith("/") and "\n" not in text:
            found = self._arguments(text) if " " in text else self._commands(text[1:])
            for completion in await found if not isinstance(found, Iterator) else found:
                yield completion
        elif (word := _last_word(text)).startswith("@"):
            workspace = self._context().host.workspace
            for path in await to_thread.run_sync(matching_paths, workspace, word[1:]):
                yield Completion(f"@{path} ", start_position=-len(word), display=path)

    def _commands(self, prefix: str) -> Iterator[Completion]:
        for name, command in all_commands(self._context().host).items():
            if name.startswith(prefix):
                more = " " if command.usage and not command.usage.startswith("[") else ""
                yield Completion(
                    f"/{name}{more}", start_position=-len(prefix) - 1, display=f"/{name}", display_meta=command.help
                )

    async def _arguments(self, text: str) -> list[Completion]:
        name, _, part = text.partition(" ")
        choices = await self._choices(name.removeprefix("/"))
        found = [(choice.line.partition(" ")[2], choice.label) for choice in choices]
        return [
            Completion(value, start_position=-len(part), display_meta=label if label != value else "")
            for value, label in found
            if part.lower() in value.lower() or part.lower() in label.lower()
        ]

    async def _choices(self, name: str) -> Sequence[Choice]:
        context = self._context()
        command = all_commands(context.host).get(name)
        if command is None or not command.picks:
            return ()
        now = context.host.clock.monotonic()
        asked, choices = self._offered.get(name, (float("-inf"), ()))
        if now - asked > FRESH:
            try:
                choices = (await command.run(context, "")).choices
            except LmagentError:
                choices = ()  # the command itself reports the fault
            self._offered[name] = (now, choices)
        return choices


def opens_menu(text: str) -> bool:
    """Whether the menu opens by itself after this text: it begins a command, or its last word a path."""
    return (text.startswith("/") and "\n" not in text) or _last_word(text).startswith("@")


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
