"""JSON as servers really send it: strict and fast first, tolerant where that fails."""

from __future__ import annotations

from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def loads(payload: bytes) -> Any:
    """Decode JSON; broken UTF-8, lone surrogates and NaN are let through.

    Raises:
        ValueError: it is not JSON even so.
    """
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        import json

        try:
            return json.loads(payload.decode("utf-8", "replace"))
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def dumps(value: Any) -> bytes:
    """Encode as compact JSON; a lone surrogate becomes U+FFFD, a pair of them its character."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_mended(value))


def is_object(text: str) -> bool:
    """Whether `text` is the valid JSON of an object, by the strict rules."""
    try:
        _decode_object(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def mend(text: str) -> str:
    """`text` with surrogate pairs joined and lone ones replaced, so that it can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _mended(value: Any) -> Any:
    match value:
        case str():
            return mend(value)
        case dict():
            return {_mended(key): _mended(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return [_mended(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
