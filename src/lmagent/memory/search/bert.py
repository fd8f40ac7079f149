"""The forward pass of a small BERT in NumPy, over weights that stay in the file (safetensors, mapped)."""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

_HEADS = 12
_EPSILON = 1e-12


def read_safetensors(path: Path) -> dict[str, Array]:
    """Return the 32-bit tensors of a file, as views of the mapped file. Raise ValueError if it is no such file.

    The format: 8 bytes with the length of a JSON head, the head with name, type, shape and place of each tensor, data
    (github.com/huggingface/safetensors).
    """
    with path.open("rb") as file:
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    length = int.from_bytes(whole[:8], "little")
    head: dict[str, dict[str, Any]] = json.loads(whole[8 : 8 + length])
    tensors: dict[str, Array] = {}
    for name, facts in head.items():
        if facts.get("dtype") == "F32":
            start, end = facts["data_offsets"]
            values = np.frombuffer(whole, np.float32, (end - start) // 4, 8 + length + start)
            tensors[name] = values.reshape(facts["shape"])
    return tensors


class Bert:
    """An encoder of texts that are given as token numbers."""

    def __init__(self, tensors: dict[str, Array]) -> None:
        self._tensors = tensors
        self.layers = 1 + max(int(name.split(".")[2]) for name in tensors if name.startswith("encoder.layer."))
        self.positions = len(tensors["embeddings.position_embeddings.weight"])
        self.vocabulary = len(tensors["embeddings.word_embeddings.weight"])

    def hidden(self, tokens: NDArray[np.int64], lengths: NDArray[np.int64]) -> Array:
        """Return the last layer's numbers for a batch of padded texts: texts x tokens x width."""
        place = np.arange(int(tokens.shape[1]))
        padding = np.where(place[None, :] < lengths[:, None], 0.0, -1e9).astype(np.float32)[:, None, None, :]
        state = self._tensors["embeddings.word_embeddings.weight"][tokens]
        state = state + self._tensors["embeddings.position_embeddings.weight"][: len(place)]
        state = state + self._tensors["embeddings.token_type_embeddings.weight"][0]
        state = self._normal(state, "embeddings.LayerNorm")
        for number in range(self.layers):
            state = self._layer(state, padding, f"encoder.layer.{number}")
        return state

    def _layer(self, state: Array, padding: Array, name: str) -> Array:
        texts, length, width = state.shape

        def heads(part: str) -> Array:
            projected = self._linear(state, f"{name}.attention.self.{part}")
            return projected.reshape(texts, length, _HEADS, width // _HEADS).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").transpose(0, 1, 3, 2) / np.float32((width // _HEADS) ** 0.5) + padding
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ heads("value")).transpose(0, 2, 1, 3).reshape(texts, length, width)
        state = self._normal(
            state + self._linear(mixed, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm"
        )
        wide = _gelu(self._linear(state, f"{name}.intermediate.dense"))
        return self._normal(state + self._linear(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm")

    def _linear(self, state: Array, name: str) -> Array:
        flat = state.reshape(-1, state.shape[-1])
        result = flat @ self._tensors[f"{name}.weight"].T + self._tensors[f"{name}.bias"]
        return result.reshape(*state.shape[:-1], -1)

    def _normal(self, state: Array, name: str) -> Array:
        moved = state - state.mean(axis=-1, keepdims=True)
        spread = np.sqrt((moved * moved).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
        return moved / spread * self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]


def pooled(hidden: Array, weights: Array) -> Array:
    """Return the weighted mean of each text's tokens (weights: texts x tokens); without weights, its first token."""
    first = np.zeros(weights.shape[1], np.float32)
    first[0] = 1
    weights = np.where(weights.sum(axis=1, keepdims=True) > 0, weights, first)
    return np.einsum("btw,bt->bw", hidden, weights) / weights.sum(axis=1, keepdims=True)


def batches(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Return the places of texts in batches of similar length, so that little is padded."""
    order = sorted(range(len(lengths)), key=lambda place: lengths[place])
    found: list[list[int]] = []
    for place in order:
        if not found or len(found[-1]) * lengths[place] > most:
            found.append([])
        found[-1].append(place)
    return found


def _gelu(values: Array) -> Array:
    """Return x * Phi(x), with the error function of Abramowitz and Stegun 7.1.26 (error < 1.5e-7): NumPy has none."""
    size = np.abs(values) * np.float32(0.7071067811865476)
    t = 1 / (1 + np.float32(0.3275911) * size)
    series = np.float32(1.061405429)
    for term in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(term)
    error = 1 - series * t * np.exp(-size * size)
    return values * np.float32(0.5) * (1 + np.where(values < 0, -error, error))
