"""JSON from real servers: a strict and fast decoder first, a tolerant one if it fails."""

from __future__ import annotations

from typing import Any

import msgspec

from lmagent.core.decoding import decoder
from lmagent.core.decoding import mend as mend

_decode = msgspec.json.Decoder().decode
_decode_object = decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def loads(payload: bytes) -> Any:
    """Decode JSON; broken UTF-8, lone surrogates and NaN are let through. Raise ValueError if it is still no JSON."""
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        import json

        try:
            return json.loads(payload.decode("utf-8", "replace"))
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def loads_or_none(payload: bytes) -> Any:
    """Decode JSON; return None for other text."""
    try:
        return loads(payload)
    except ValueError:
        return None


def dumps(value: Any) -> bytes:
    """Encode as compact JSON; a lone surrogate becomes U+FFFD, a pair of them its character."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        import json

        return mend(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def is_object(text: str) -> bool:
    """Return whether `text` is the valid JSON of an object, by the strict rules."""
    try:
        _decode_object(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
