"""Segments: the simple commands that a shell line would execute, and how they are collected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from lmagent.engine.shellline.unwrap import base_name, peel
from lmagent.engine.shellline.words import RESERVED, Word, names_in

HARMLESS_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr"))
MAX_DEPTH = 12
_MAX_SEGMENTS = 1000
# These take a variable's name, and a name such as a[$(rm x)] runs what stands in the brackets.
_NAMING = names_in("test [ printf read unset mapfile readarray let getopts wait declare typeset local export readonly")
DECLARING = names_in("declare typeset local export readonly")


class Segment(Struct, frozen=True):
    """One simple command that would be executed; with an empty argv an assignment or a redirect of its own.

    Attributes:
        argv: the words; one with an expansion is kept as its source text.
        dynamic: a word of it, or more words at its end, are only known at run time.
        reads: files it reads by redirect.
        writes: files it writes by redirect (or by an option such as `find -fprint`).
        text: its source.
        assignments: `NAME=value` before the command.
        unknown: which words are dynamic; one past the end stands for any number of further arguments.
        loose: which of them may turn out to begin with a dash, or to be several words.
        via: the commands that wrap it without being segments themselves (`timeout 5 …`, `bash -c …`), outermost first.
        barred: why no allow rule may cover it, or empty.
    """

    argv: tuple[str, ...] = ()
    dynamic: bool = False
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    text: str = ""
    assignments: tuple[str, ...] = ()
    unknown: tuple[int, ...] = ()
    loose: tuple[int, ...] = ()
    via: tuple[tuple[str, ...], ...] = ()
    barred: str = ""


class CommandLine(Struct, frozen=True):
    """What a line would execute; `opaque` says why that is not all of it, or not known."""

    segments: tuple[Segment, ...]
    opaque: str = ""
    text: str = ""


class Outside:
    """A command as it is put together: its words and what surrounds them."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.assignments: list[str] = []
        self.inputs: list[str | None] = []
        self.barred = ""

    def add(self, other: Outside) -> None:
        """Take over what stands around a statement that ends with this command."""
        self.words += other.words
        self.reads += other.reads
        self.writes += other.writes
        self.assignments += other.assignments
        self.inputs += other.inputs
        self.barred = self.barred or other.barred

    def fed(self) -> str | None:
        """The text on the standard input, where there is one source of it and it is static."""
        return self.inputs[0] if len(self.inputs) == 1 else None


class Collector:
    """Lists segments, and what they run in turn."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.opaque = ""
        self.functions: set[str] = set()
        self.via: tuple[tuple[str, ...], ...] = ()
        self.depth = 0
        self.evaluates = False
        self.hidden = False

    def read(self, command: str) -> None:
        """Read a text that a command runs."""
        raise NotImplementedError

    def fail(self, reason: str) -> None:
        """The line is opaque; the first reason counts."""
        self.opaque = self.opaque or reason

    def finished(self) -> Iterator[Segment]:
        """The segments, when everything has been read: a function may be defined after the call of it."""
        if self.evaluates and self.hidden:
            self.fail("it may run text that is hidden in a variable")
        for segment in self.segments:
            called = {argv[0] for argv in (segment.argv, *segment.via) if argv} & self.functions
            if called:
                reason = f"{min(called)} is a function defined in the line"
                yield msgspec.structs.replace(segment, barred=reason)
            else:
                yield segment

    def add(self, segment: Segment) -> None:
        """List a segment."""
        if len(self.segments) >= _MAX_SEGMENTS:
            return self.fail("it runs too many commands")
        return self.segments.append(segment)

    def emit(self, outside: Outside, raw: bytes) -> None:
        """A command is complete: list it, and what it runs in turn."""
        self.run(tuple(outside.words), outside, raw.decode("utf-8", "replace"), self.via)

    def run(self, words: Sequence[Word], outside: Outside, text: str, via: tuple[tuple[str, ...], ...]) -> None:
        """List a command; where it is a wrapper, what is inside of it."""
        segment = _segment(words, outside, text, via)
        if not words:
            return self.add(segment)
        if not words[0].known or not words[0].text:
            self.fail("the name of a command is only known at run time")
            return self.add(segment)
        if len(via) > len(self.via) and words[0].text in RESERVED - {"time"}:
            self.fail("it cannot be parsed with certainty")
        self.check_names(words)
        peeled = peel(words, outside.fed())
        if peeled is None:
            return self.add(segment)
        if peeled.opaque:
            self.fail(peeled.opaque)
        own = bool(outside.assignments or outside.reads or outside.barred or set(outside.writes) - HARMLESS_TARGETS)
        if peeled.keep or (peeled.texts and own):
            self.add(segment)
        if len(via) >= MAX_DEPTH:
            return self.fail("it is nested too deeply")
        inside = (*via, segment.argv)
        around = Outside()
        around.add(outside)
        around.assignments += peeled.assignments
        around.writes += peeled.writes
        if peeled.writes and not peeled.inner:
            self.add(msgspec.structs.replace(segment, writes=tuple(around.writes)))
        for inner in peeled.inner:
            self.run(inner, around, text, inside)
        saved, self.via = self.via, inside
        for inner_text in peeled.texts:
            self.read(inner_text)
        self.via = saved
        return None

    def check_names(self, words: Sequence[Word]) -> None:
        """Builtins that evaluate the name of a variable, and with it what an index contains."""
        name = base_name(words[0].text)
        if name not in _NAMING:
            return
        for word in words[1:]:
            if word.known and "[" in word.text and ("$(" in word.text or "`" in word.text):
                self.fail(f"it runs text inside a variable's name: {name}")
            self.evaluates = self.evaluates or not word.known
            integers = name in DECLARING and word.text.startswith("-") and bool(set(word.text) & set("in"))
            if name == "let" or integers:
                self.evaluates = True
                self.add(Segment(text=name, via=self.via, barred="it evaluates what variables contain"))


def _segment(words: Sequence[Word], outside: Outside, text: str, via: tuple[tuple[str, ...], ...]) -> Segment:
    """REST, which has no text, is no word of the argv: only an index past its end."""
    unknown = tuple(at for at, word in enumerate(words) if not word.known)
    return Segment(
        argv=tuple(word.text for word in words if word.text or word.known),
        dynamic=bool(unknown),
        reads=tuple(outside.reads),
        writes=tuple(outside.writes),
        text=text,
        assignments=tuple(outside.assignments),
        unknown=unknown,
        loose=tuple(at for at in unknown if words[at].loose),
        via=via,
        barred=outside.barred,
    )
