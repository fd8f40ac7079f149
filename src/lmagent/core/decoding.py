"""JSON, MessagePack and plain values into types, safe in threads.

msgspec 0.22 looks into a type when it is first decoded, and other threads can meet it half done: the process then ends
with a segmentation fault. Here one thread at a time looks into a new type; what is known is decoded without a lock.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
_lock = threading.Lock()
_known: set[Any] = set()


def _learn(kind: Any) -> None:
    if kind not in _known:
        with _lock:
            msgspec.json.Decoder(kind)
            _known.add(kind)


@overload
def decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def decoder(kind: Any) -> Any:
    """What decodes JSON into `kind`, again and again."""
    _learn(kind)
    return msgspec.json.Decoder(kind)


@overload
def decode_json(data: bytes | str, kind: type[T]) -> T: ...
@overload
def decode_json(data: bytes | str, kind: Any) -> Any: ...
def decode_json(data: bytes | str, kind: Any) -> Any:
    """The JSON text as `kind`.

    Raises:
        msgspec.ValidationError: it is JSON, but not of that type.
        msgspec.DecodeError: it is not JSON.
    """
    _learn(kind)
    return msgspec.json.decode(data, type=kind)


def decode_msgpack(data: bytes | memoryview, kind: type[T]) -> T:
    """The MessagePack data as `kind`.

    Raises:
        msgspec.ValidationError: it is MessagePack, but not of that type.
        msgspec.DecodeError: it is not MessagePack.
    """
    _learn(kind)
    return msgspec.msgpack.decode(data, type=kind)


@overload
def convert(value: Any, kind: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any: ...
def convert(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """Dictionaries, lists, strings and numbers as `kind`; not strict takes "1" for a number.

    Raises:
        msgspec.ValidationError: it is not of that type.
    """
    _learn(kind)
    return msgspec.convert(value, kind, strict=strict)
