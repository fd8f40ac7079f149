"""A plugin for lmagent. `register` is named by the entry point in pyproject.toml, and runs once at the start."""

from __future__ import annotations

from lmagent.app.registry import Registry
from lmagent_words.command import words_command
from lmagent_words.server import Wordy
from lmagent_words.tool import count_words


def register(registry: Registry) -> None:
    registry.tool(count_words)
    registry.command(words_command)
    registry.dialect(Wordy("wordy", "Wordy"), owners=("wordy",))
