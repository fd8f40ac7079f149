"""Frames: outgoing events, encoded once for all watchers."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from lmagent.core import events as ev


class Frame(Struct, frozen=True):
    """An outgoing event.

    Attributes:
        seq: its number in the watched stream; 0 if it is not recorded.
        data: the event as JSON, with its session.
    """

    seq: int
    data: bytes


def framed(event: ev.Event, session: str) -> Frame:
    """Return the frame of an event in the stream of `session`."""
    if isinstance(event, ev.SessionCreated | ev.SessionForked):  # a copy still names the session it was copied from
        return Frame(event.seq, ev.encode(msgspec.structs.replace(event, session=session)))
    try:
        line = ev.encode(event)
    except UnicodeEncodeError:  # half of a surrogate pair, as a model may write
        line = msgspec.json.encode(_whole(msgspec.to_builtins(event)))
    return Frame(event.seq, b'%b,"session":"%b"}' % (line[:-1], session.encode()))


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        pairs: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return {_whole(key): _whole(item) for key, item in pairs.items()}
    if isinstance(value, list | tuple):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return [_whole(item) for item in items]
    return value
