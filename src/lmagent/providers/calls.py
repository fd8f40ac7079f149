"""Calls: puts the pieces of streamed tool calls together, whichever way a server cuts and labels them.

A piece belongs to the call with its id, else with its index, else at its position in the delta. Seen in the wild:
Ollama numbers every call 0; some servers send no ids, the same id twice, or a new id with every piece; names come
once, with every piece, or in parts; arguments come as text, as an object, or not at all; a last chunk may repeat all.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from lmagent.core.ids import new_id
from lmagent.core.messages import ToolCall
from lmagent.providers import jsontext


class _Open:
    """A call under way."""

    __slots__ = ("id", "index", "name", "pieces", "position")

    def __init__(self, id: str, index: int | None, position: int) -> None:
        self.id = id
        self.index = index
        self.position = position
        self.name = ""
        self.pieces: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def complete(self) -> bool:
        last = self.pieces[-1] if self.pieces else ""
        return last.rstrip()[-1:] in ("}", "") and jsontext.is_object(self.arguments)


class CallAssembler:
    """Collects the calls of one reply."""

    def __init__(self) -> None:
        self._calls: list[_Open] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def feed(self, entries: Any) -> None:
        """Take a delta's `tool_calls`; what is not an entry is skipped."""
        if isinstance(entries, dict):
            entries = [entries]
        if not isinstance(entries, list):
            return
        for position, entry in enumerate(cast("list[Any]", entries)):
            if isinstance(entry, dict):
                self._take(cast("dict[str, Any]", entry), position)

    def _take(self, entry: dict[str, Any], position: int) -> None:
        inner = entry.get("function")
        function = cast("dict[str, Any]", inner) if isinstance(inner, dict) else entry
        name = _text(function.get("name"))
        arguments = _arguments(function.get("arguments"))
        identity = _text(entry.get("id"))
        index = entry.get("index")
        index = index if isinstance(index, int) else None
        if not (name or arguments or identity):
            return
        call = self._find(identity, index, position, name)
        if call is not None and _begins_anew(call, identity, index, name, arguments):
            call = None
        if call is None:
            call = _Open(identity, index, position)
            self._calls.append(call)
        elif _opens(arguments) and call.complete and arguments.strip() == call.arguments.strip():
            arguments = ""  # the whole call once more
        call.id = call.id or identity
        call.name = _join_name(call.name, name)
        if arguments:
            call.pieces.append(arguments)

    def _find(self, identity: str, index: int | None, position: int, name: str) -> _Open | None:
        """The open call that a piece belongs to, the latest first."""
        latest = self._calls[::-1]
        same_id = next((c for c in latest if identity and c.id == identity), None)
        if same_id is not None:
            return same_id
        if index is not None:
            same_place = next((c for c in latest if c.index == index), None)
        else:
            same_place = next((c for c in latest if c.position == position), None)
        if same_place is not None and identity and same_place.id and name:
            return None  # another id and a name of its own: another call
        return same_place

    def finish(
        self, taken: Collection[str], *, cut: bool, finished: bool
    ) -> tuple[tuple[ToolCall, ...], frozenset[str]]:
        """The calls, and the ids of those that the reply cut off.

        Args:
            taken: ids used earlier in the conversation.
            cut: the reply hit its length limit, so the last call is not to be trusted.
            finished: the server named a finish reason; without one, damaged arguments count as cut off.
        """
        used = set(taken)
        calls: list[ToolCall] = []
        truncated: set[str] = set()
        for call in self._calls:
            identity = call.id if call.id and call.id not in used else _fresh(used)
            used.add(identity)
            arguments = _undoubled(call.pieces)
            whole = jsontext.is_object(arguments)
            if not arguments.strip() and not cut:
                arguments, whole = "{}", True
            calls.append(ToolCall(identity, call.name, jsontext.mend(arguments)))
            if not whole and (cut or not finished):
                truncated.add(identity)
        if cut and calls:
            truncated.add(calls[-1].id)
        return tuple(calls), frozenset(truncated)


def _begins_anew(call: _Open, identity: str, index: int | None, name: str, arguments: str) -> bool:
    """Whether a piece that points at `call` is really the beginning of another call."""
    if identity and call.id == identity and index is not None and call.index is not None and index != call.index:
        return True  # one id for two calls
    if name and call.name and name != call.name and call.pieces:
        return True
    return _opens(arguments) and call.complete and arguments.strip() != call.arguments.strip()


def _opens(arguments: str) -> bool:
    """Whether a piece may be the beginning of arguments: asked first, since joining the pieces each time is slow."""
    return arguments.lstrip()[:1] == "{"


def _join_name(known: str, piece: str) -> str:
    """Names come whole, repeated, growing, or in parts."""
    if not piece or piece == known or known.startswith(piece):
        return known
    return piece if piece.startswith(known) else known + piece


def _undoubled(pieces: list[str]) -> str:
    """The arguments; where every piece came twice and only half of them makes an object, that half."""
    whole = "".join(pieces)
    if len(pieces) % 2 == 0 and pieces[::2] == pieces[1::2] and not jsontext.is_object(whole):
        half = "".join(pieces[::2])
        if jsontext.is_object(half):
            return half
    return whole


def _arguments(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else jsontext.dumps(value).decode()


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value)


def _fresh(used: set[str]) -> str:
    while (identity := f"call_{new_id()}") in used:
        pass
    return identity
