"""Checkpoint: a folder with a model of Hugging Face's transformers: `config.json` and safetensors.

Format: https://huggingface.co/docs/safetensors; a model in several files has an index with a `weight_map`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import msgspec

from lmagent.modelserver.library.gguf import broken
from lmagent.modelserver.spec import DEFAULT_CONTEXT, ModelServerError, ModelSettings

MAX_JSON = 64 << 20
OVERHEAD = 1 << 30
"""Bytes that torch and the interpreter take besides."""


def checkpoint(folder: Path, settings: ModelSettings) -> tuple[int, int]:
    """Look at a folder.

    Returns:
        Bytes on disk, and bytes of memory needed: weights, a cache of two bytes a number, and what torch takes.

    Raises:
        ModelServerError: it cannot be loaded, and why.
    """
    config = _json(folder / "config.json")
    if not config.get("architectures") and not config.get("model_type"):
        raise broken(folder / "config.json", "names no architecture", "fetch the whole repository again")
    files = _weights(folder)
    size = sum(_checked(file) for file in files)
    inner: dict[str, Any] = {**config, **_object(config.get("text_config"))}
    heads = _whole(inner, "num_attention_heads") or 1
    per_head = _whole(inner, "head_dim") or _whole(inner, "hidden_size") // heads
    context = settings.context or min(_whole(inner, "max_position_embeddings") or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    layer = (_whole(inner, "num_key_value_heads") or heads) * per_head * 4
    return size, size + context * settings.parallel * layer * _whole(inner, "num_hidden_layers") + OVERHEAD


def _weights(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    named = {str(name) for name in _object(_json(index).get("weight_map")).values()}
    if any(os.path.basename(name) != name for name in named):
        raise broken(index, "names files outside its folder", "do not use this model")
    missing = sorted(name for name in named if not (folder / name).is_file())
    if missing:
        raise broken(folder, f"lacks {', '.join(missing[:4])}", "fetch the whole repository again")
    return [folder / name for name in sorted(named)]


def _checked(path: Path) -> int:
    """The size of a safetensors file whose header and data are all there."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(size - 8, MAX_JSON):
                raise broken(path, "is no safetensors file, or cut off")
            header = _object(msgspec.json.decode(file.read(length)))
    except OSError as error:
        raise broken(path, f"cannot be read: {error.strerror or error}", "check its permissions") from None
    except (ValueError, RecursionError):
        raise broken(path, "has a damaged header") from None
    ends = [_object(value).get("data_offsets") for name, value in header.items() if name != "__metadata__"]
    end = max((offsets[-1] for offsets in map(_list, ends) if offsets and isinstance(offsets[-1], int)), default=0)
    if 8 + length + end > size:
        raise broken(path, f"is cut off: it has {size:,} bytes of {8 + length + end:,}")
    return size


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_JSON:
            raise broken(path, "is too large", "fetch the whole repository again")
        value: Any = msgspec.json.decode(path.read_bytes())
    except ModelServerError:
        raise
    except OSError as error:
        raise broken(path, f"cannot be read: {error.strerror or error}", "check its permissions") from None
    except (ValueError, RecursionError):
        raise broken(path, "is no JSON", "fetch the whole repository again") from None
    return _object(value)


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _whole(values: dict[str, Any], key: str) -> int:
    value = values.get(key)
    return min(max(value, 0), 1 << 32) if isinstance(value, int) and not isinstance(value, bool) else 0
