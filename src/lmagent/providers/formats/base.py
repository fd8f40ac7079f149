"""The parts of every format: the tools of the request, the text to read, and the calls found in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

from msgspec import Struct, field

from lmagent.core import loosejson as values
from lmagent.core import repair
from lmagent.core.messages import ToolCall
from lmagent.core.patterns import late
from lmagent.providers import jsontext

_SPACE = late(r"\s*")
_PREFIXES = ("functions.", "function.", "tools.", "tool.", "default_api.", "namespace.", "assistant.")
_NUMBERED = late(r"(.*?):\d+\Z", re.DOTALL)


class FoundCall(Struct, kw_only=True):
    """A call in a reply, from its recognition to its `ToolCall`.

    Attributes:
        name: the tool, as the model wrote it, without the format's own prefix; the request may not offer it.
        arguments: an object, or text: JSON from the server, or the model's text if it cannot be read.
        raw: the text that the call was read from.
        id: the id in the reply, empty without one. In text it is not unique: models count from 0 in each reply.
        fault: why the call must not run: the damage of its arguments, and its place, or that the call may be a part of
            an earlier damaged one; empty if it may run.
        sure: its closing markup is complete; otherwise it must not run at a token limit.
        spills: its last string may continue in the text after it.
        truncated: the end of the reply cut it off, or may have.
        at: its position in the text of the reply.
    """

    name: str
    arguments: dict[str, Any] | str
    raw: str = ""
    format: str = ""
    id: str = ""
    fault: str = ""
    sure: bool = True
    spills: bool = False
    truncated: bool = False
    at: int = 0

    @property
    def arguments_text(self) -> str:
        """Return the arguments as JSON text; damaged ones unchanged."""
        return self.arguments if isinstance(self.arguments, str) else jsontext.dumps(self.arguments).decode()

    def tool_call(self) -> ToolCall:
        """Return the call for the loop; a call with a fault gets arguments that are no JSON and name the fault."""
        text = jsontext.mend(self.arguments_text)
        if self.fault and (not text.strip() or jsontext.is_object(text)):
            text = f"({self.fault}) {text}"
        return ToolCall(self.id, self.name, text)


class Say(NamedTuple):
    text: str
    thought: bool = False


class Found(Struct, kw_only=True):
    """The calls and text that a format reads at one place.

    Attributes:
        end: the place after them.
        items: calls and text, in order.
        cut: the name of a call that the text ends inside of; empty if that is unknown, None if none was cut.
        header: it is markup before text, not a call: the text after it is undecided.
        last: no text after it counts (an invented result, and text that builds on it).
        code: all text would be valid arguments of its call, so it counts only if it cannot be a mention.
    """

    end: int
    items: list[FoundCall | Say] = field(default_factory=list["FoundCall | Say"])
    cut: str | None = None
    header: bool = False
    last: bool = False
    code: bool = False

    def add(self, other: Found) -> bool:
        """Continue with the calls after these; return whether the text continues after them."""
        self.items += other.items
        self.end, self.cut = other.end, other.cut
        return other.cut is None

    @property
    def calls(self) -> list[FoundCall]:
        return [item for item in self.items if isinstance(item, FoundCall)]


class Toolset:
    """The tools of the request: `ToolSpec`s, or tools with a `spec` and aliases."""

    def __init__(self, tools: Iterable[Any]) -> None:
        self._tools: dict[str, Any] = {}
        for tool in tools:
            for name in (tool.name, *getattr(tool, "aliases", ())):
                self._tools.setdefault(name, tool)

    def known(self, name: str) -> bool:
        return self.plain(name) in self._tools

    def plain(self, name: str) -> str:
        """Return the name without a namespace or number that the offered name does not have."""
        name = name.strip().strip("\"'`*")
        if name in self._tools:
            return name
        bare = _bare(name)
        return bare if bare in self._tools else name

    def schema(self, name: str) -> dict[str, Any]:
        tool = self._tools.get(name)
        return getattr(tool, "spec", tool).parameters if tool is not None else {}

    def properties(self, name: str) -> dict[str, Any]:
        found = self.schema(name).get("properties")
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def required(self, name: str) -> list[str]:
        found = self.schema(name).get("required")
        return [str(item) for item in cast("list[Any]", found)] if isinstance(found, list) else []

    def main(self, name: str) -> str | None:
        """Return the argument for a bare text, if only one is possible; else None."""
        known = self.properties(name)
        names = self.required(name) or list(known)
        if len(names) != 1:
            return None
        kinds = repair.types_of(known.get(names[0]))
        return names[0] if not kinds or "string" in kinds else None


class Source:
    """The text of a reply, and the formats' results for it.

    Attributes:
        begins: no text or markup precedes the place.
        effort: characters that were read for damaged or cut values.
        memo: results that formats keep for the whole text.
        spilled: a damaged call of a known tool was left as text.
        stopped: the last value lacked its closing brackets after a string, so the string may continue.
    """

    def __init__(self, text: str, tools: Toolset) -> None:
        self.text = text
        self.tools = tools
        self.end = len(text)
        self.begins = True
        self.effort = 0
        self.spilled = False
        self.stopped = False
        self.memo: dict[object, Any] = {}
        self._seen: dict[str | re.Pattern[str], tuple[int, int]] = {}

    def skip(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return found.end() if found else at

    def starts(self, at: int, *literals: str) -> str:
        return next((word for word in literals if self.text.startswith(word, at)), "")

    def closer(self, at: int, *literals: str) -> int:
        """Return the size of the literal at `at`, also if the end of the text cuts it off; 0 without one."""
        if word := self.starts(at, *literals):
            return len(word)
        rest = self.text[at:] if 0 < self.end - at < 64 else ""
        return len(rest) if rest and any(word.startswith(rest) for word in literals) else 0

    def match(self, pattern: re.Pattern[str], at: int) -> re.Match[str] | None:
        return pattern.match(self.text, at)

    def find(self, literal: str, at: int) -> int:
        return self._next(literal, at, self.text.find)

    def search(self, pattern: re.Pattern[str], at: int) -> int:
        def look(_: object, at: int) -> int:
            found = pattern.search(self.text, at)
            return found.start() if found else -1

        return self._next(pattern, at, look)

    def _next(self, wanted: Any, at: int, look: Callable[[Any, int], int]) -> int:
        """Return the result of `look` from `at` on; a search is not repeated."""
        since, place = self._seen.get(wanted, (self.end + 1, -1))
        if not since <= at or -1 < place < at:
            place = look(wanted, at)
            self._seen[wanted] = (at, place)
        return place

    def first(self, literals: Iterable[str], at: int) -> tuple[int, str]:
        """Return the place and text of the first of several literals from `at`, or (-1, "")."""
        found = [(place, word) for word in literals if (place := self._next(word, at, self.text.find)) >= 0]
        return min(found, default=(-1, ""))

    def value(self, at: int, stops: tuple[str, ...] = ()) -> tuple[Any, int]:
        """Return the JSON value at `at` and its end; raise `Cut` or `Broken`."""
        self.stopped = False
        found = values.strict(self.text, at)
        if not isinstance(found, int):
            return found
        self.effort += found
        try:
            value, end, self.stopped = values.completed(self.text, at, stops)
            return value, end
        except (values.Cut, values.Broken) as error:
            self.effort += max(error.at - at, 0)
            raise

    def call(self, name: str, arguments: Any, start: int, end: int, id: str = "") -> FoundCall:
        return make_call(self.tools, name, arguments, self.text[start:end], id)


def make_call(tools: Toolset, name: str, arguments: Any, raw: str, id: str = "") -> FoundCall:
    """Return a call of `arguments` in any form: an object, its JSON as a string, or none."""
    name = tools.plain(name)
    if isinstance(arguments, str) and arguments.strip():
        read = repair.read_arguments(arguments)
        if read is None:
            fault = values.fault_in(arguments)
            return FoundCall(name=name, arguments=arguments, raw=raw, id=id, fault=fault)
        arguments = cast("Any", read)
    if arguments is None or arguments in ("", []) or (isinstance(arguments, str) and not arguments.strip()):
        arguments = {}
    if not isinstance(arguments, dict):
        text = jsontext.dumps(arguments).decode()
        return FoundCall(name=name, arguments=text, raw=raw, id=id, fault="not a JSON object")
    fitted = repair.fit(cast("dict[str, Any]", arguments), tools.schema(name))
    return FoundCall(name=name, arguments=fitted, raw=raw, id=id)


Read = Callable[[Source, int, str], "Found | None"]


class Format(Struct, frozen=True, kw_only=True):
    """A format.

    Attributes:
        read: takes the text, the place after an opener and the opener; returns the calls, or None for no call.
        openers: markup that begins it, at any place.
        line: a pattern (no capturing groups) that begins it at the beginning of a line, instead of `openers`; `read`
            then gets the place of the beginning.
        bare: it has no markup of its own: only known tools count, and prose may be before or after it, not both.
        quiet: leftover markup of the format, dropped if no sentence continues around it.
    """

    name: str
    read: Read
    openers: tuple[str, ...] = ()
    line: str = ""
    bare: bool = False
    quiet: tuple[str, ...] = ()

    def find(self, source: Source, at: int, opener: str) -> Found | None:
        found = self.read(source, at, opener)
        for call in found.calls if found is not None else ():
            call.format = call.format or self.name
        return found


def _bare(name: str) -> str:
    if numbered := _NUMBERED.match(name):
        name = numbered[1]
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def end_of(text: str, at: int) -> int:
    """Return the beginning of the blanks before `at`."""
    while at > 0 and text[at - 1].isspace():
        at -= 1
    return at


def unprefixed(name: str) -> str:
    """Return the name without `functions.` before and a number after it, known or not."""
    return _bare(name.strip())
