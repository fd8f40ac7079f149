"""Calls: puts the pieces of streamed tool calls together, whichever way a server cuts and labels them.

A piece belongs to the call with its id, else with its index, else at its position in the delta. Seen in the wild:
Ollama numbers every call 0; some servers send no ids, the same id twice, or a new id with every piece; names come
once, with every piece, or in parts; arguments come as text, as an object, as text of a text, or not at all; `{}` goes
before the real ones; a last chunk may repeat all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from lmagent.core.ids import new_id
from lmagent.core.model import ToolSpec
from lmagent.providers import jsontext
from lmagent.providers.formats.base import FoundCall


class _Open:
    """A call under way. `empty`: arguments with which it is no call, but an echo of the one before it."""

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
        """Compare a call that begins at the place of another one: only its content shows that it is not the same."""
        if not name or (name == before.name and self.id and self.id == before.id):
            self.name, self.empty = before.name, ("", "{}")
        elif name == before.name:
            self.empty = ("",)


CALL_SIZE = 2000
"""Characters that a call counts for beside its own: the pieces of each are looked for among all of them."""


class CallAssembler:
    """Collects the calls of one reply.

    Args:
        tools: the tools that may be called: their names and schemas show whether a name and its arguments are
            whole.

    Attributes:
        size: characters that came, with `CALL_SIZE` for each call.
    """

    def __init__(self, tools: Sequence[ToolSpec] = ()) -> None:
        self.size = 0
        self._calls: list[_Open] = []
        self._tools = tools
        self._schemas: Mapping[str, dict[str, Any]] | None = None

    def __bool__(self) -> bool:
        return bool(self._calls)

    def feed(self, entries: Any, said: int = 0) -> str:
        """Take a delta's `tool_calls` and return the names and arguments in it; other values are skipped.

        Args:
            entries: as they came.
            said: characters of the text that came before them.
        """
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
                    arguments = ""  # the whole call once more
                else:
                    call.pieces.clear()  # it was `{}`, before the real ones
        call.id = call.id or identity
        call.name = _join_name(call.name, name)
        if arguments:
            call.pieces.append(arguments)
        return came

    def _find(self, identity: str, index: int | None, position: int, name: str) -> _Open | None:
        """The open call that a piece belongs to, the latest first."""
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
            return None  # another id and a name of its own: another call
        return same_place

    def _begins_anew(self, call: _Open, identity: str, index: int | None, name: str, arguments: str) -> bool:
        """Whether a piece that points at `call` is really the beginning of another call."""
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
        """Whether two pieces of a name are the names of two tools; else they are parts of one."""
        schemas = self._known()
        if piece not in schemas or piece.startswith(known) or known.startswith(piece):
            return False
        return not any(name.startswith(known + piece) for name in schemas)

    def _known(self) -> Mapping[str, dict[str, Any]]:
        if self._schemas is None:
            self._schemas = {tool.name: tool.parameters for tool in self._tools}
        return self._schemas

    def finish(self, taken: Collection[str], *, cut: bool, finished: bool) -> list[FoundCall]:
        """The calls, in order.

        Args:
            taken: ids used earlier in the conversation.
            cut: the reply hit its length limit, so the last call is not to be trusted.
            finished: the server named a finish reason; without one, damaged arguments count as cut off.
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
        """The arguments of a call, and whether they are an object."""
        arguments = _undoubled(call.pieces)
        if jsontext.is_object(arguments):
            return arguments, True
        schema = self._known().get(call.name)
        if not arguments.strip():
            # None came. Where the reply may have been cut, that is all only if the tool takes none.
            takes_none = schema is not None and not schema.get("properties")
            return ("{}", True) if finished or takes_none else (arguments, False)
        from lmagent.core.repair import read_arguments  # few models need it

        meant = read_arguments(arguments, schema, whole=finished)
        return (arguments, False) if meant is None else (jsontext.dumps(meant).decode(), True)


_UNMARKED = ("json", "fenced-json", "python", "pythonic", "tool-code", "react", "glm-4")
"""Formats without markup of their own: text that is a call by its shape alone."""


def alongside(understood: Sequence[FoundCall], found: Sequence[FoundCall], text: str) -> list[FoundCall] | None:
    """All calls of a reply of which the server understood some, and left others in the text: in the order of the reply.

    A call that is in the text as well is one call. None if a call in the text has no markup: next to calls that the
    server understood it is more likely a text about calls, and stays text.

    Args:
        understood: the calls that the server understood.
        found: the calls in the text.
        text: the text.
    """
    left = [call for call in found if not _is_echo(call, understood)]
    if left and left[0].name == "unreadable" and left[0].truncated and not left[0].format:
        left = []  # an opening tag at the end of the text
    if any(call.format in _UNMARKED or (call.format == "mistral" and "[TOOL_CALLS]" not in text) for call in left):
        return None
    return sorted((*understood, *left), key=lambda call: (call.at, bool(call.format)))


def _is_echo(call: FoundCall, understood: Sequence[FoundCall]) -> bool:
    """Whether a call in the text is one that the server understood, and left there all the same."""
    same = [made.arguments_text for made in understood if made.name == call.name]
    try:
        arguments = jsontext.loads(call.tool_call().arguments.encode())
        return arguments in [jsontext.loads(jsontext.mend(known).encode()) for known in same]
    except ValueError:
        return bool(same)  # one of them cannot be read, or is cut off


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
