"""JSON from real servers: a strict and fast decoder first, a tolerant one if it fails."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from lmagent.core.decoding import decoder

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


def dumps(value: Any) -> bytes:
    """Encode as compact JSON; a lone surrogate becomes U+FFFD, a pair of them its character."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_mended(value))


def is_object(text: str) -> bool:
    """Return whether `text` is the valid JSON of an object, by the strict rules."""
    try:
        _decode_object(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def mend(text: str) -> str:
    """Return `text` with surrogate pairs joined and lone ones replaced, so that it can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _mended(value: Any) -> Any:
    """Return a copy with every string mended; without recursion, as a model's value may be very deep."""
    root: list[Any] = [value]
    places: list[tuple[Any, Any]] = [(root, 0)]
    while places:
        holder, place = places.pop()
        item: Any = holder[place]
        if isinstance(item, str):
            holder[place] = mend(item)
        elif isinstance(item, dict):
            found = cast("dict[Any, Any]", item)
            copy = {mend(key) if isinstance(key, str) else key: inner for key, inner in found.items()}
            holder[place] = copy
            places += [(copy, key) for key in copy]
        elif isinstance(item, list | tuple):
            items = list(cast("list[Any]", item))
            holder[place] = items
            places += [(items, number) for number in range(len(items))]
    return root[0]
