"""Frames: events as they go out, encoded once for all who watch."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from lmagent.core import events as ev


class Frame(Struct, frozen=True):
    """An event on its way out.

    Attributes:
        seq: its place in what is watched; 0 for one that is not recorded.
        data: the event as JSON, with the session that it belongs to.
    """

    seq: int
    data: bytes


def framed(event: ev.Event, session: str) -> Frame:
    """The frame of an event.

    Args:
        event: durable or live.
        session: id of the session in whose stream it goes out.
    """
    if isinstance(event, ev.SessionCreated | ev.SessionForked):  # a copy still names the session it was copied from
        return Frame(event.seq, ev.encode(msgspec.structs.replace(event, session=session)))
    try:
        line = ev.encode(event)
    except UnicodeEncodeError:  # half of a character, as a model may write one
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
