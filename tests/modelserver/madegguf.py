"""GGUF files written byte by byte, right ones and wrong ones, without the package `gguf`."""

from __future__ import annotations

import struct
from pathlib import Path

U32, F32, BOOL, STRING, ARRAY, U64 = 4, 6, 7, 8, 9, 10


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def value(item) -> bytes:
    if isinstance(item, bool):
        return struct.pack("<I?", BOOL, item)
    if isinstance(item, int):
        return struct.pack("<II", U32, item) if item < 1 << 32 else struct.pack("<IQ", U64, item)
    if isinstance(item, float):
        return struct.pack("<If", F32, item)
    if isinstance(item, str | bytes):
        return struct.pack("<I", STRING) + text(item)
    if item and isinstance(item[0], str | bytes):
        return struct.pack("<IIQ", ARRAY, STRING, len(item)) + b"".join(map(text, item))
    return struct.pack("<IIQ", ARRAY, U32, len(item)) + struct.pack(f"<{len(item)}I", *item)


def tensor(name: str, shape, kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(pairs: dict, tensors=(), *, version: int = 3, data: bytes | None = None) -> bytes:
    """A file: `tensors` are (name, shape, type number, bytes)."""
    infos, offset = [], 0
    for name, shape, kind, size in tensors:
        infos.append(tensor(name, shape, kind, offset))
        offset += -(-size // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(pairs))
    head += b"".join(text(key) + value(item) for key, item in pairs.items()) + b"".join(infos)
    head += b"\0" * (-len(head) % 32)
    return head + (bytes(offset) if data is None else data)


TEMPLATE = "{% if tools %}{{ tools | tojson }}{% endif %}{% if enable_thinking %}<think>{% endif %}"


def pairs(architecture: str = "qwen3", *, tokens: int = 40, **more) -> dict:
    """The pairs of a small chat model; `more` are keys of its architecture, `__` for a dot."""
    own = {
        "context_length": 32768,
        "block_count": 2,
        "embedding_length": 64,
        "feed_forward_length": 160,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        **{key.replace("__", "."): item for key, item in more.items()},
    }
    return {
        "general.architecture": architecture,
        "general.name": "Made for a test",
        "general.file_type": 15,
        **{f"{architecture}.{key}": item for key, item in own.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"t{number}" for number in range(tokens)],
        "tokenizer.chat_template": TEMPLATE,
    }


TENSORS = (
    ("token_embd.weight", (64, 40), 0, 64 * 40 * 4),
    ("blk.0.attn_q.weight", (256, 16), 12, 16 * 144),
    ("blk.1.attn_q.weight", (256, 16), 14, 16 * 210),
)


def chat_file(path: Path, **more) -> Path:
    """A small chat model; nothing can be computed with it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gguf(pairs(**more), TENSORS))
    return path
