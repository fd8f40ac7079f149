"""Long-term memory. `open_memory` gives the index that finds texts again; docs/memory.md describes it.

Importing this package loads neither SQLite nor NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from lmagent.core.memory import Hit, MemoryIndex, MemoryItem
from lmagent.memory.search.grouped import grouped

if TYPE_CHECKING:
    from lmagent.memory.search.embedding import Embedder
    from lmagent.memory.search.index import SqliteMemoryIndex

__all__ = ["Hit", "MemoryIndex", "MemoryItem", "grouped", "open_memory"]


def open_memory(
    path: str | Path, embedder: Embedder | str | None = None, *, on_notice: Callable[[str], None] | None = None
) -> SqliteMemoryIndex:
    """Open an index of texts, made if it is missing.

    Args:
        path: a database file, or a folder, which gets an `index.db`. A path that does not exist is a folder unless its
            name has a suffix.
        embedder: None to find by words alone; "minilm", or the URL of a server with `/v1/embeddings`; or an object
            with a `name` and `embed(texts)`.
        on_notice: receives sentences for the user: a damaged file was set aside and a new index begun, or vectors
            cannot be made, and why. It may be called from another thread.

    Raises:
        ConfigError: the text is neither `minilm` nor a URL.
        StoreError: the database cannot be used.
    """
    from lmagent.memory.search.index import SqliteMemoryIndex

    file = Path(path)
    if file.is_dir() or not (file.exists() or file.suffix):
        file /= "index.db"
    return SqliteMemoryIndex(file, _embedder(embedder), on_notice or (lambda notice: None))


def _embedder(given: Embedder | str | None) -> Embedder | None:
    if not isinstance(given, str):
        return given
    if given == "minilm":
        from lmagent.memory.search.minilm import MiniLM

        return MiniLM()
    from lmagent.memory.search.endpoint import EndpointEmbedder

    return EndpointEmbedder(given)
