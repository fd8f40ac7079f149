"""What every format is made of: the tools of the request, the text to read, and what was found in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from msgspec import Struct, field

from lmagent.core import loosejson as values
from lmagent.core import repair

_SPACE = re.compile(r"\s*")
_PREFIXES = ("functions.", "function.", "tools.", "tool.", "default_api.", "namespace.", "assistant.")
_NUMBERED = re.compile(r"(.*?):\d+\Z", re.DOTALL)
_LOOK = 200
"""Characters that a pattern of a format may need to decide (a tag with a name in it)."""
_BEHIND = 40
"""Characters behind a match that may still make it another one (the longest optional part of a pattern)."""


class More(Exception):
    """The text so far leaves it open."""


class Call(Struct, kw_only=True):
    """A call as a format found it.

    Attributes:
        name: the tool, as the model wrote it, without the format's own prefix.
        arguments: an object, or, where they cannot be read, their text as it came.
        raw: the text that the call was read from.
        format: the format's name.
        id: the id that the format carries; empty if it has none.
        fault: what is wrong with arguments that cannot be read, and where; empty if they were.
        sure: no markup that ends it, or one of its arguments, was missing or read in a second attempt.
        spills: it was damaged in such a way that what stands behind it may be a part of it.
    """

    name: str
    arguments: dict[str, Any] | str
    raw: str = ""
    format: str = ""
    id: str = ""
    fault: str = ""
    sure: bool = True
    spills: bool = False


class Say(NamedTuple):
    """Text to show; `thought` if it is a thought."""

    text: str
    thought: bool = False


class Found(Struct, kw_only=True):
    """What stands at a place.

    Attributes:
        end: where it ends.
        items: calls and text, in order.
        cut: the name of a call that the text ends inside of; empty if that is unknown, None if none was cut.
        header: it is markup before text, not a call: nothing about what follows is decided.
        last: nothing after it counts (an invented result and what was built on it).
        code: any text would be the arguments of its call, so it only counts where it cannot be a mention.
    """

    end: int
    items: list[Call | Say] = field(default_factory=list["Call | Say"])
    cut: str | None = None
    header: bool = False
    last: bool = False
    code: bool = False

    @property
    def calls(self) -> list[Call]:
        """The calls among its items."""
        return [item for item in self.items if isinstance(item, Call)]


class Toolset:
    """The tools of the request: names, aliases and argument schemas.

    Args:
        tools: tool specs of this project, tools with a `spec`, or objects in OpenAI's shape; `aliases` where given.
    """

    def __init__(self, tools: Iterable[Any]) -> None:
        self._tools: dict[str, Any] = {}
        for tool in tools:
            for name in _names(tool):
                self._tools.setdefault(name, tool)
        self._schemas: dict[str, dict[str, Any]] = {}

    @property
    def names(self) -> Iterable[str]:
        """All names and aliases."""
        return self._tools.keys()

    def known(self, name: str) -> bool:
        """Whether the request offers a tool of this name."""
        return self.plain(name) in self._tools

    def plain(self, name: str) -> str:
        """The name without a namespace or a number that is not part of the offered name."""
        name = name.strip().strip("\"'`*")
        if name in self._tools:
            return name
        bare = _bare(name)
        return bare if bare in self._tools else name

    def schema(self, name: str) -> dict[str, Any]:
        """The argument schema; empty for an unknown tool."""
        if name not in self._schemas and name in self._tools:
            self._schemas[name] = _schema(self._tools[name])  # of few: a reply calls some of many
        return self._schemas.get(name, {})

    def properties(self, name: str) -> dict[str, Any]:
        """The schemas of a tool's arguments, in their order."""
        found = self.schema(name).get("properties")
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}

    def required(self, name: str) -> list[str]:
        """The arguments that a tool must get."""
        found = self.schema(name).get("required")
        return [str(item) for item in cast("list[Any]", found)] if isinstance(found, list) else []

    def main(self, name: str) -> str | None:
        """The one argument that a bare text must be meant for, or None."""
        known = self.properties(name)
        names = self.required(name) or list(known)
        if len(names) != 1:
            return None
        kinds = repair.types_of(known.get(names[0]))
        return names[0] if not kinds or "string" in kinds else None


class Source:
    """A text that is being read, with what is known of it; `begins`: nothing was found or shown before this place;
    `effort`: how many characters were read for values that are none; `memo`: what formats know of the whole text;
    `spilled`: something was left as text that is plainly meant as a call, and damaged inside a string; `stopped`: the
    last value lacked its brackets behind a string, which may go on.

    Its look-ups raise `More` where more text could change their answer, so that a format which only uses them decides
    the same for a growing text as for the whole one.
    """

    def __init__(self, text: str, tools: Toolset, *, final: bool) -> None:
        self.text = text
        self.tools = tools
        self.final = final
        self.end = len(text)
        self.begins = True
        self.effort = 0
        self.spilled = False
        self.stopped = False
        self.memo: dict[object, Any] = {}
        self._seen: dict[str | re.Pattern[str], tuple[int, int]] = {}

    def skip(self, at: int) -> int:
        """The first place from `at` that is not blank."""
        found = _SPACE.match(self.text, at)
        at = found.end() if found else at
        if at >= self.end and not self.final:
            raise More
        return at

    def starts(self, at: int, *literals: str) -> str:
        """Which of the literals stands at `at`; empty if none does."""
        if found := next((word for word in literals if self.text.startswith(word, at)), ""):
            return found
        if not self.final:
            rest = self.text[at:] if self.end - at < 64 else ""
            if at >= self.end or (rest and any(word.startswith(rest) for word in literals)):
                raise More
        return ""

    def closer(self, at: int, *literals: str) -> int:
        """The size of the literal at `at`, also of one that the end of the text cuts off; 0 if none stands there."""
        if word := self.starts(at, *literals):
            return len(word)
        rest = self.text[at:] if 0 < self.end - at < 64 else ""
        return len(rest) if rest and any(word.startswith(rest) for word in literals) else 0

    def match(self, pattern: re.Pattern[str], at: int) -> re.Match[str] | None:
        """The pattern at `at`."""
        found = pattern.match(self.text, at)
        if not self.final and (self.end - found.end() < _BEHIND if found else self.end - at < _LOOK):
            raise More
        return found

    def find(self, literal: str, at: int) -> int:
        """Where a literal comes next; -1 if it does not come."""
        since, place = self._seen.get(literal, (self.end + 1, -1))
        if not since <= at or -1 < place < at:
            place = self.text.find(literal, at)
            self._seen[literal] = (at, place)
        if place < 0 and not self.final:
            raise More
        return place

    def search(self, pattern: re.Pattern[str], at: int) -> int:
        """Where a pattern comes next; -1 if it does not come."""
        since, place = self._seen.get(pattern, (self.end + 1, -1))
        if not since <= at or -1 < place < at:
            found = pattern.search(self.text, at)
            place = found.start() if found else -1
            self._seen[pattern] = (at, place)
        if not self.final and (place < 0 or self.end - place < _LOOK):
            raise More
        return place

    def first(self, literals: Iterable[str], at: int) -> tuple[int, str]:
        """The first of several literals from `at`, or (-1, "")."""
        places = [(place, word) for word in literals if (place := self.text_find(word, at)) >= 0]
        if not places and not self.final:
            raise More
        return min(places, default=(-1, ""))

    def text_find(self, literal: str, at: int) -> int:
        """Like `find`, but -1 also where it may still come."""
        try:
            return self.find(literal, at)
        except More:
            return -1

    def value(self, at: int, stops: tuple[str, ...] = ()) -> tuple[Any, int]:
        """The JSON value at `at` and its end.

        Raises:
            More, Cut, Broken: see `values.loose`.
        """
        self.stopped = False
        found = values.strict(self.text, at)
        if not isinstance(found, int):
            if found[1] >= self.end and not self.final and self.text[self.end - 1] not in "}]":
                raise More
            return found
        self.effort += found
        if not self.final:
            raise More  # cut or damaged: which of them, the rest will show
        try:
            value, end, self.stopped = values.completed(self.text, at, stops)
            return value, end
        except (values.Cut, values.Broken) as error:
            self.effort += max(error.at - at, 0)
            raise

    def call(self, name: str, arguments: Any, start: int, end: int, format: str, id: str = "") -> Call:
        """A call that stands at `start` to `end`."""
        return make_call(self.tools, name, arguments, self.text[start:end], format, id)


def make_call(tools: Toolset, name: str, arguments: Any, raw: str, format: str, id: str = "") -> Call:
    """A call of `arguments` in any form: an object, its JSON as a string, or nothing."""
    name = tools.plain(name)
    if isinstance(arguments, str) and arguments.strip():
        read = repair.read_arguments(arguments)
        if read is None:
            fault = values.fault_in(arguments)
            return Call(name=name, arguments=arguments, raw=raw, format=format, id=id, fault=fault)
        arguments = cast("Any", read)
    if arguments is None or arguments in ("", []) or (isinstance(arguments, str) and not arguments.strip()):
        arguments = {}
    if not isinstance(arguments, dict):
        from lmagent.providers import jsontext

        text = jsontext.dumps(arguments).decode()
        return Call(name=name, arguments=text, raw=raw, format=format, id=id, fault="not a JSON object")
    fitted = repair.fit(cast("dict[str, Any]", arguments), tools.schema(name))
    return Call(name=name, arguments=fitted, raw=raw, format=format, id=id)


Read = Callable[[Source, int, str], "Found | None"]


class Format(Struct, frozen=True, kw_only=True):
    """A format.

    Attributes:
        name: as it is reported.
        read: given the text, the place behind an opener and the opener, what stands there; None if it is no call.
        openers: markup that begins it, anywhere.
        line: a pattern (no capturing groups) that begins it at the beginning of a line, instead of `openers`; `read`
            then gets the place where it begins.
        bare: it has no markup of its own: only known tools count, and prose may stand before or behind it, not both.
        quiet: leftover markup of the format, dropped where no sentence goes on around it.
    """

    name: str
    read: Read
    openers: tuple[str, ...] = ()
    line: str = ""
    bare: bool = False
    quiet: tuple[str, ...] = ()


def _bare(name: str) -> str:
    if numbered := _NUMBERED.match(name):
        name = numbered[1]
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def end_of(text: str, at: int) -> int:
    """Where the blanks before `at` begin."""
    while at > 0 and text[at - 1].isspace():
        at -= 1
    return at


def unprefixed(name: str) -> str:
    """The name without `functions.` before and a number behind it, known or not."""
    return _bare(name.strip())


def _names(tool: Any) -> list[str]:
    if not isinstance(tool, Mapping):
        return [str(each) for each in (getattr(tool, "name", None), *getattr(tool, "aliases", ())) if each]
    entry, spec = _entry(tool)
    aliases = spec.get("aliases") or entry.get("aliases") or ()
    return [str(each) for each in (spec.get("name"), *aliases) if each]


def _schema(tool: Any) -> dict[str, Any]:
    if isinstance(tool, Mapping):
        _, spec = _entry(tool)
        schema = spec.get("parameters") or spec.get("input_schema") or spec.get("inputSchema")
    else:
        schema = getattr(getattr(tool, "spec", tool), "parameters", None)
    return cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}


def _entry(tool: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """An object in OpenAI's shape, and what stands in its `function`."""
    entry = cast("Mapping[str, Any]", tool)
    inner = entry.get("function")
    return entry, cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else entry
