"""Segments: the simple commands that a shell line would execute, and how they are collected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from lmagent.engine.shellline.besides import besides, told
from lmagent.engine.shellline.guess import may_be, named, spread
from lmagent.engine.shellline.meter import Meter, TooMuchWork
from lmagent.engine.shellline.unwrap import WRAPPERS, base_name, peel
from lmagent.engine.shellline.words import RESERVED, Word, names_in

HARMLESS_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr"))
MAX_DEPTH = 12
_MAX_GLOBS = 4
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
        glob: where the program's name is a glob, what it may match, in lower case.
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
    glob: str = ""


class CommandLine(Struct, frozen=True):
    """What a line would execute.

    Attributes:
        segments: its commands.
        opaque: why that is not all of it, or not known; then no rule allows it.
        text: the line.
        hides: why it may run a command that does not stand in it, and which only the run will tell.
        possible: what it may run besides, for rules that deny: programs that git is told to run, what braces become.
    """

    segments: tuple[Segment, ...]
    opaque: str = ""
    text: str = ""
    hides: str = ""
    possible: tuple[Segment, ...] = ()


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

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.segments: list[Segment] = []
        self.possible: list[Segment] = []
        self.opaque = ""
        self.hides = ""
        self.functions: set[str] = set()
        self.via: tuple[tuple[str, ...], ...] = ()
        self.depth: int = 0
        self.evaluates = False
        self.hidden = False
        self.guessing = False

    def read(self, command: str) -> None:
        """Read a text that a command runs."""
        raise NotImplementedError

    def fail(self, reason: str, *, hides: bool = True) -> None:
        """The line is opaque, and may hide a command; the first reason counts. A guess makes nothing opaque."""
        if not self.guessing:
            self.opaque = self.opaque or reason
        if hides:
            self.hides = self.hides or reason

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
        listed = self.possible if self.guessing else self.segments
        if len(listed) >= _MAX_SEGMENTS:
            self.fail("it runs too many commands")
            raise TooMuchWork
        self.meter.spend()
        listed.append(segment)

    def emit(self, outside: Outside, raw: bytes) -> None:
        """A command is complete: list it, and what it runs in turn."""
        self.run(tuple(outside.words), outside, raw.decode("utf-8", "replace"), self.via)

    def run(self, words: Sequence[Word], outside: Outside, text: str, via: tuple[tuple[str, ...], ...]) -> None:
        """List a command; where it is a wrapper, what is inside of it."""
        self.meter.spend(1 + len(words) // 8)
        segment = _segment(words, outside, text, via)
        if not words:
            return self.add(segment)
        if not words[0].known or not words[0].text:
            return self.unnamed(words, outside, segment)
        if len(via) > len(self.via) and words[0].text in RESERVED - {"time"}:
            self.fail("it cannot be parsed with certainty")
        self.check_names(words)
        if not self.guessing and any(b"{" in word.sketch for word in words):
            self.guess(spread(words) or (), outside, segment)
        self.besides(words, outside, text, (*via, segment.argv))
        peeled = peel(words, outside.fed())
        if peeled is None:
            return self.add(segment)
        if peeled.opaque:
            self.fail(peeled.opaque, hides=peeled.hides)
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
        for assignment in peeled.assignments:
            self.variable(*assignment.split("=", 1))
        if peeled.writes and not peeled.inner:
            self.add(msgspec.structs.replace(segment, writes=tuple(around.writes)))
        for inner in peeled.inner:
            self.run(inner, around, text, inside)
        return self.texts(peeled.texts, inside)

    def texts(self, texts: Iterable[str], via: tuple[tuple[str, ...], ...]) -> None:
        """Read texts that a command runs."""
        saved, self.via = self.via, via
        for text in texts:
            self.read(text)
        self.via = saved

    def unnamed(self, words: Sequence[Word], outside: Outside, segment: Segment) -> None:
        """A command whose name is not fixed: never allowed, and a rule that denies is told what the name may be."""
        plain = spread(words)
        meant = list[tuple[str, str]]()  # globs, and the first name that is none
        for word in (plain or ())[:_MAX_GLOBS]:
            # A glob that matches nothing may be no word at all, and the next word the name.
            if (name := named(word)) is None:
                break
            meant.append(name)
            if not name[1]:
                break
        globs = [glob for _, glob in meant if glob]
        wraps = any(may_be(one, glob) for glob in globs for one in WRAPPERS)
        sure = plain is not None and meant and not wraps and (not meant[-1][1] or len(meant) == len(plain))
        self.fail("the name of a command is only known at run time", hides=bool(words[0].text) and not sure)
        self.add(segment)
        for at, (name, glob) in enumerate(meant):
            words = (plain or ())[at:]
            if glob:
                form = _segment(words, outside, segment.text, segment.via)
                self.possible.append(msgspec.structs.replace(form, glob=glob))
            elif name:
                self.guess((Word(name), *words[1:]), outside, segment)

    def guess(self, words: Sequence[Word], outside: Outside, segment: Segment) -> None:
        """List what a command may turn out to be, for rules that deny."""
        if words:
            saved, self.guessing = self.guessing, True
            self.run(tuple(words), outside, segment.text, segment.via)
            self.guessing = saved

    def besides(self, words: Sequence[Word], outside: Outside, text: str, via: tuple[tuple[str, ...], ...]) -> None:
        """What a program runs because its words say so, although it is no wrapper; for rules that deny."""
        found = besides(words)
        if found is None:
            return None
        if found.hides:
            self.fail_quietly(found.hides)
        if len(via) > MAX_DEPTH:
            return self.fail_quietly("it is nested too deeply")
        saved, self.guessing = self.guessing, True
        for inner in found.inner:
            self.run(inner, outside, text, via)
        self.texts(found.texts, via)
        self.guessing = saved
        return None

    def fail_quietly(self, reason: str) -> None:
        """The line may hide a command, although it is understood."""
        self.hides = self.hides or reason

    def variable(self, name: str, value: str = "") -> None:
        """Some variables are text that a shell runs, or the file of it."""
        found = told(name, value)
        if found is None:
            return
        if found.hides:
            self.fail_quietly(found.hides)
        saved, self.guessing = self.guessing, True
        self.texts(found.texts, self.via)
        self.guessing = saved

    def check_names(self, words: Sequence[Word]) -> None:
        """Builtins that evaluate the name of a variable, and with it what an index contains."""
        name = base_name(words[0].text)
        if name not in _NAMING:
            return
        for word in words[1:]:
            if name in ("printf", "read", "mapfile", "readarray", "getopts"):
                self.variable(word.text, "$")
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
