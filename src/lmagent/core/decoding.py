"""Typed decoding of JSON, MessagePack and plain values that is safe in threads.

msgspec (0.22.0) builds its description of a type at the first decoding, and lets other threads use it before it is
complete: they read a null pointer, and the process crashes. So a type is prepared under a lock before its first use.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

if TYPE_CHECKING:
    from json import JSONDecodeError

T = TypeVar("T")
_lock = threading.Lock()
_prepared: set[Any] = set()


def _prepare(kind: Any) -> None:
    if kind not in _prepared:
        with _lock:
            msgspec.json.Decoder(kind)
            _prepared.add(kind)


@overload
def decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def decoder(kind: Any) -> Any:
    """Return a reusable decoder from JSON to `kind`."""
    _prepare(kind)
    return msgspec.json.Decoder(kind)


@overload
def decode_json(data: bytes | str, kind: type[T]) -> T: ...
@overload
def decode_json(data: bytes | str, kind: Any) -> Any: ...
def decode_json(data: bytes | str, kind: Any) -> Any:
    """Decode a JSON text to `kind`.

    Raises:
        msgspec.ValidationError: it is JSON, but not of that type.
        msgspec.DecodeError: it is not JSON.
    """
    _prepare(kind)
    return msgspec.json.decode(data, type=kind)


def decode_msgpack(data: bytes | memoryview, kind: type[T]) -> T:
    """Decode MessagePack data to `kind`.

    Raises:
        msgspec.ValidationError: it is MessagePack, but not of that type.
        msgspec.DecodeError: it is not MessagePack.
    """
    _prepare(kind)
    return msgspec.msgpack.decode(data, type=kind)


@overload
def convert(value: Any, kind: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any: ...
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """Convert dictionaries, lists, strings and numbers to `kind`; unless strict, "1" is accepted as a number.

    Raises:
        msgspec.ValidationError: it is not of that type.
    """
    _prepare(kind)
    return msgspec.convert(value, kind, strict=strict)


def json_fault(text: str | bytes) -> JSONDecodeError | None:
    """Return the standard library's error for a broken JSON text, which has line and column; None if it finds none."""
    import json  # slow to load, and only broken texts need it

    try:
        json.loads(text)
    except json.JSONDecodeError as fault:
        return fault
    except (RecursionError, ValueError):
        pass
    return None


def mend(text: str) -> str:
    """Return `text` with surrogate pairs joined and lone ones replaced, so that it can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
