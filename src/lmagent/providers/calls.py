"""Calls: assembles the pieces of streamed tool calls, in each server's way of cutting and labelling them.

A piece belongs to the call with its id, else with its index, else at its position in the delta. Seen in the wild:
Ollama numbers every call 0; some servers send no ids, the same id twice, or a new id with every piece; names come once,
with every piece, or in parts; arguments come as text, as an object, as text of a text, or not at all; `{}` precedes the
real ones; a last chunk may repeat all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from lmagent.core.ids import new_id
from lmagent.core.model import ToolSpec
from lmagent.providers import jsontext
from lmagent.providers.formats.base import FoundCall


class _Open:
    """A call in progress. `empty`: its arguments would make it an echo of the previous call, not a call."""

    __slots__ = ("empty", "id", "index", "name", "pieces", "position", "said")

    def __init__(self, id: str, index: int | None, position: int, said: int) -> None:
        self.id = id
        self.index = index
        self.position = position
        self.said = said
        self.name = ""
        self.pieces: list[str] = []
        self.empty: tuple[str, ...] = ()

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def complete(self) -> bool:
        last = self.pieces[-1] if self.pieces else ""
        return last.rstrip()[-1:] in ("}", "") and jsontext.is_object(self.arguments)

    def follow(self, before: _Open, name: str) -> None:
        """Compare a call with the open one at the same place: only its content shows that it is another."""
        if not name or (name == before.name and self.id and self.id == before.id):
            self.name, self.empty = before.name, ("", "{}")
        elif name == before.name:
            self.empty = ("",)


CALL_SIZE = 2000
"""Characters counted for each call besides its own: its pieces are searched among all calls."""


class CallAssembler:
    """Collects the calls of one reply.

    Args:
        tools: the callable tools: they show whether a name and its arguments are whole.

    Attributes:
        size: characters received, with `CALL_SIZE` for each call.
    """

    def __init__(self, tools: Sequence[ToolSpec] = ()) -> None:
        self.size = 0
        self._calls: list[_Open] = []
        self._tools = tools
        self._schemas: Mapping[str, dict[str, Any]] | None = None

    def __bool__(self) -> bool:
        return bool(self._calls)

    def feed(self, entries: Any, said: int = 0) -> str:
        """Take a delta's `tool_calls` (`said`: characters of text before them); return their names and arguments."""
        if isinstance(entries, dict):
            entries = [entries]
        if not isinstance(entries, list):
            return ""
        pieces = [
            self._take(cast("dict[str, Any]", entry), position, said)
            for position, entry in enumerate(cast("list[Any]", entries))
            if isinstance(entry, dict)
        ]
        return "".join(pieces)

    def _take(self, entry: dict[str, Any], position: int, said: int) -> str:
        inner = entry.get("function")
        function = cast("dict[str, Any]", inner) if isinstance(inner, dict) else entry
        name = _text(function.get("name"))
        arguments = _arguments(function.get("arguments"))
        identity = _text(entry.get("id"))
        index = entry.get("index")
        index = index if isinstance(index, int) else None
        came = name + arguments
        if not (came or identity):
            return ""
        self.size += len(came)
        known = self._find(identity, index, position, name)
        if known is None or self._begins_anew(known, identity, index, name, arguments):
            call = _Open(identity, index, position, said)
            if known is not None:
                call.follow(known, name)
            self._calls.append(call)
            self.size += CALL_SIZE
        else:
            call = known
            if _opens(arguments) and call.complete:
                if arguments.strip() == call.arguments.strip():
                    arguments = ""  # the whole call was repeated
                else:
                    call.pieces.clear()  # `{}` preceded the real arguments
        call.id = call.id or identity
        call.name = _join_name(call.name, name)
        if arguments:
            call.pieces.append(arguments)
        return came

    def _find(self, identity: str, index: int | None, position: int, name: str) -> _Open | None:
        latest = self._calls[::-1]
        if identity:
            same_id = [c for c in latest if c.id == identity]
            if same_id:  # some servers give all calls of a reply one id
                return next((c for c in same_id if index is None or c.index in (None, index)), same_id[0])
        if index is not None:
            same_place = next((c for c in latest if c.index == index), None)
        else:
            same_place = next((c for c in latest if c.position == position), None)
        if same_place is not None and identity and same_place.id and name:
            return None  # another id and another name: another call
        return same_place

    def _begins_anew(self, call: _Open, identity: str, index: int | None, name: str, arguments: str) -> bool:
        """Return whether a piece that refers to `call` begins another call."""
        same = bool(identity) and call.id == identity
        if name and same and index is not None and call.index is not None and index != call.index:
            return True  # one id for two calls
        if name and call.name and name != call.name and (call.pieces or self._are_two(call.name, name)):
            return True
        if _opens(arguments):
            whole = call.arguments.strip() if call.complete else ""
            return whole not in ("", arguments.strip()) and not (whole == "{}" and (same or not name))
        return bool(name) and not same and not arguments.strip() and call.complete

    def _are_two(self, known: str, piece: str) -> bool:
        """Return whether two pieces of a name are two tools' names, or parts of one name."""
        schemas = self._known()
        if piece not in schemas or piece.startswith(known) or known.startswith(piece):
            return False
        return not any(name.startswith(known + piece) for name in schemas)

    def _known(self) -> Mapping[str, dict[str, Any]]:
        if self._schemas is None:
            self._schemas = {tool.name: tool.parameters for tool in self._tools}
        return self._schemas

    def finish(self, taken: Collection[str], *, cut: bool, finished: bool) -> list[FoundCall]:
        """Return the calls, in order.

        Args:
            taken: ids used earlier in the conversation.
            cut: the reply hit its length limit, so the last call is not to be trusted.
            finished: the server gave a finish reason; otherwise damaged arguments count as cut off.
        """
        used = set(taken)
        calls: list[FoundCall] = []
        opened = [call for call in self._calls if not call.empty or call.arguments.strip() not in call.empty]
        for call in opened:
            identity = call.id if call.id and call.id not in used else _fresh(used)
            used.add(identity)
            arguments, whole = self._whole(call, finished=finished and not cut)
            truncated = (cut and call is opened[-1]) or (not whole and (cut or not finished))
            found = FoundCall(name=call.name, arguments=arguments, id=identity, truncated=truncated, at=call.said)
            calls.append(found)
        return calls

    def _whole(self, call: _Open, *, finished: bool) -> tuple[str, bool]:
        """Return the arguments of a call, and whether they are an object."""
        arguments = _undoubled(call.pieces)
        if jsontext.is_object(arguments):
            return arguments, True
        schema = self._known().get(call.name)
        if not arguments.strip():
            # No arguments came. If the reply may have been cut, they are complete only for a tool without arguments.
            takes_none = schema is not None and not schema.get("properties")
            return ("{}", True) if finished or takes_none else (arguments, False)
        from lmagent.core.repair import read_arguments  # few models need it

        meant = read_arguments(arguments, schema, whole=finished)
        return (arguments, False) if meant is None else (jsontext.dumps(meant).decode(), True)


_UNMARKED = ("json", "fenced-json", "python", "pythonic", "tool-code", "react", "glm-4")
"""Formats without markup of their own: text that is a call by its shape alone."""


def alongside(understood: Sequence[FoundCall], found: Sequence[FoundCall], text: str) -> list[FoundCall] | None:
    """Return all calls of a reply, in its order: those that the server recognised (`understood`), and those left in the
    text.

    A call that is also in the text counts once. Return None if a call in the text has no markup: next to recognised
    calls it is more likely a text about calls, and stays text.
    """
    left = [call for call in found if not _is_echo(call, understood)]
    if left and left[0].name == "unreadable" and left[0].truncated and not left[0].format:
        left = []  # an opening tag at the end of the text
    if any(call.format in _UNMARKED or (call.format == "mistral" and "[TOOL_CALLS]" not in text) for call in left):
        return None
    return sorted((*understood, *left), key=lambda call: (call.at, bool(call.format)))


def _is_echo(call: FoundCall, understood: Sequence[FoundCall]) -> bool:
    """Return whether a call in the text repeats a recognised one."""
    same = [made.arguments_text for made in understood if made.name == call.name]
    try:
        arguments = jsontext.loads(call.tool_call().arguments.encode())
        return arguments in [jsontext.loads(jsontext.mend(known).encode()) for known in same]
    except ValueError:
        return bool(same)  # one of them is unreadable or cut off


def _opens(arguments: str) -> bool:
    """Return whether a piece may begin arguments: checked first, since joining the pieces each time is slow."""
    return arguments.lstrip()[:1] == "{"


def _join_name(known: str, piece: str) -> str:
    """Names come whole, repeated, growing, or in parts."""
    if not piece or piece == known or known.startswith(piece):
        return known
    return piece if piece.startswith(known) else known + piece


def _undoubled(pieces: list[str]) -> str:
    """Return the arguments; if each piece came twice and only one half makes an object, that half."""
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
