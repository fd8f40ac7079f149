"""Scan: goes through a text once, tells calls, thoughts and text apart, and keeps what each of them is.

What is read is decided where it stands: markup in code, quotations, lists and inside a sentence is text; what a format
recognises elsewhere is a call. The same code reads a whole text and a growing one: there, whatever more text could
still change is left for later (`More`).
"""

from __future__ import annotations

import re

from lmagent.providers.formats import fences
from lmagent.providers.formats.base import Call, Found, More, Source, Toolset, end_of
from lmagent.providers.formats.markup import (
    BY_OPENER,
    CLOSING,
    HERE,
    INSIDE,
    LINE,
    LINES,
    QUIET,
    RESULTS,
    Ahead,
    behind_calls,
    behind_row,
    growing,
    native,
    native_soon,
    opens_at_end,
    quiet,
    undecided,
    unfinished,
)
from lmagent.providers.formats.place import Place, belongs
from lmagent.providers.formats.thinking import Thinking
from lmagent.providers.formats.thoughts import CLOSES, OPENS, TAGS, Pairing, open_quotation, quoted

_WINDOW = 2000
_QUESTION = re.compile(r"\s*\n\**Question\b[^\n]*\s*\Z")
_EFFORT = 8
"""How many times the length of the text may be spent on what turns out to be no call."""


_NOT_RUN = "not run: the call before it is damaged, and this one may be a part of its text"


class Scanner(Thinking):
    """Reads one reply.

    Attributes:
        content: the text to show.
        thoughts: the thoughts, in order.
        calls: the calls, in order.
        cut: the name of a call that the end of the text cut off; None if none was.
    """

    def __init__(self, tools: Toolset) -> None:
        super().__init__(tools)
        self.cut: str | None = None
        self._fence: re.Pattern[str] | None = None
        self._spent = 0
        self._over = False
        self._examples: set[str] = set()
        self._inside = Ahead(INSIDE)
        self._next_line = Ahead(LINE)

    def read(self, text: str, *, final: bool) -> None:
        """Read on.

        Args:
            text: everything that was not dropped by `trim`, and what has come since.
            final: nothing more will come.
        """
        self._text = text
        self._source = Source(text, self._tools, final=final)
        self._pairing = Pairing(text, final=final)
        self._inside.forget()
        self._next_line.forget()
        try:
            while self._at < len(text) and not self._over:
                self._step()
        except More:
            pass

    # What comes next

    def _step(self) -> None:
        if self._fence is not None:
            self._inside_fence(self._fence)
            return
        found = self._event()
        begin = found.start() if found else len(self._text)
        if not self._source.final and (found is None or self._safe() < begin):
            self._say(max(self._at, min(begin, self._safe())))
            raise More
        size = opens_at_end(self._text) if found is None else 0
        self._say(begin - size)
        if size and self._apart():
            self._take(Found(end=begin, cut=""))
        self._say(begin)
        if found is None:
            return
        if found.re is INSIDE:
            self._markup(found[0])
        else:
            self._begin_line(found)

    def _event(self) -> re.Match[str] | None:
        """The next thing that needs a look."""
        if self._spent + self._source.effort > _EFFORT * len(self._text) + 100_000:
            return None  # made to be slow: all that is left is text
        if self._fresh and self._text[self._at] != "\n":
            self._skip_blanks()
            if found := HERE.match(self._text, self._at):
                return found
            if not self._source.final and undecided(self._text, self._at, fresh=True) == self._at:
                raise More
        inside = self._inside.find(self._text, self._at)
        line = self._next_line.find(self._text, self._at)
        if line is not None and (inside is None or line.start() <= inside.start()):
            return line
        if (
            inside is not None
            and not self._source.final
            and (inside.end() >= len(self._text) or growing(self._text, inside.start()))
        ):
            self._say(max(self._at, min(inside.start(), self._safe())))
            raise More
        return inside

    def _skip_blanks(self) -> None:
        """A line that begins behind markup begins at its first word."""
        if self._lead or self._at > self._line or not self._at or self._text[self._at - 1] == "\n":
            return
        at = self._at
        while at < len(self._text) and self._text[at] in " \t":
            at += 1
        if at < len(self._text):
            self._say(at)
            self._fresh, self._line = True, at

    def _safe(self) -> int:
        """How far the text is text, whatever follows."""
        end = len(self._text) - unfinished(self._text)
        begin = undecided(self._text, self._at, fresh=self._fresh)
        return min(end, begin) if begin >= 0 else end

    # What begins a line

    def _begin_line(self, found: re.Match[str]) -> None:
        kind = found.lastgroup or ""
        if kind in ("code", "quote", "item"):
            if found.end() >= len(self._text) and not self._source.final:
                raise More
            self._quoted_line(found)
            return
        if kind == "fence":
            self._begin_fence(found)
            return
        format = LINES[int(kind[1:])]
        begin = found.start(kind)
        self._source.begins = self.content.empty and not self.calls
        result = format.read(self._source, begin, found[kind])
        accepted = result is not None and (
            self._stands_alone(result) if format.bare else not self._shown(begin, result, format.name)
        )
        if result is not None and accepted:
            self._say(begin)
            self._take(result)
            return
        self._spent += (result.end if result else min(begin + 400, len(self._text))) - begin
        self._say(begin + 1)
        if result is not None and (format.bare or result.calls):
            self._say(result.end)
        self._fresh = False

    def _shown(self, begin: int, found: Found, name: str) -> bool:
        """Whether calls with markup that begins a line are shown as an example, or more of one before."""
        place = Place(self._source, self._before(begin), found.end, _QUESTION.sub("", self.content.last))
        if found.calls and found.cut is None and (name in self._examples or place.as_example()):
            self._examples.add(name)
            return True
        return False

    def _quoted_line(self, found: re.Match[str]) -> None:
        """A line of code, of a quotation or of a list holds no call; but a thought may end in it."""
        closing = CLOSING.search(self._text, found.start(), found.end())
        opened = closing is not None and any(tag in self._text[found.start() : closing.start()] for tag in OPENS)
        if closing is not None and not opened and not quoted(self._text, closing.start(), closing.end()):
            self._say(closing.start())
            self._close_thought(closing.end())
            return
        end = found.end()
        for opened in INSIDE.finditer(self._text, found.start(), found.end()):
            # Markup that is opened here and closed below belongs to the quotation, with all that stands between.
            inner = native(self._source, opened[0], opened.end()) if opened[0] in BY_OPENER else None
            if inner is None or inner.header:
                continue
            if inner.cut is None and inner.calls and not any(call.fault for call in inner.calls):
                end = max(end, inner.end)
            else:
                self._spent += inner.end - opened.end()
        fence = fences.in_item(found[0])
        self._say(end)
        self._fence, self._fresh = fence, False

    def _stands_alone(self, found: Found) -> bool:
        """Whether calls without markup stand on lines of their own, and not as an example."""
        end = end_of(self._text, found.end)
        if found.cut is not None:
            return True
        at = self._source.skip(end)
        found.end = end
        place = self._place(self._at, end)
        if "\n" not in self._text[end:at] and place.behind():
            return False
        while word := quiet(self._text, at):
            at = self._source.skip(at + len(word))
        return at >= len(self._text) or self.content.empty or not place.as_example()

    # Markup

    def _markup(self, word: str) -> None:
        end = self._at + len(word)
        if word[0] == "`":
            self._code(word)
        elif word in TAGS and not self._source.final and open_quotation(self._text, self._at):
            raise More
        elif word in CLOSES and not quoted(self._text, self._at, end):
            self._close_thought(end)
        elif word in OPENS:
            self._open_thought(word, end)
        elif word in BY_OPENER:
            self._native(word, end)
        elif word in RESULTS and (self.calls or not self._before(self._at).strip()):
            self._result(RESULTS[word], end)
        elif word in QUIET and self._says_nothing(word, end):
            self._drop(end)
        else:
            self._say(end)

    def _result(self, closing: str, end: int) -> None:
        """A block of a result: invented, if it stands behind a call; what it quotes is no call anywhere."""
        close = self._source.find(closing, end)
        if close < 0 and self.calls and self._is_thought():
            return
        if self.calls:
            self._drop(close + len(closing) if close >= 0 else len(self._text))
        else:
            self._say(close + len(closing) if close >= 0 else end)

    def _says_nothing(self, word: str, end: int) -> bool:
        """Whether a token is left over: alone in its line, beside other markup, or at either end of the reply."""
        place = self._place(self._at, end)
        before, behind = place.before.strip(), place.behind()
        if (before and behind) or (word == "</s>" and "<s>" in before):
            return False
        if self.content.gapped or not (before or behind):
            return True
        at = self._source.skip(end)
        if at >= len(self._text):
            return True
        if not before and self.content.empty:
            return not place.goes_on()
        if not self._source.final and growing(self._text, at):
            raise More
        following = INSIDE.match(self._text, at)
        joined = "\n" in self._text[end:at] and not Place.ended(before)
        return following is not None and following[0][0] != "`" and not joined

    def _code(self, marks: str) -> None:
        """Inline code: what stands between two equal runs of marks in a line is text."""
        begin = self._at + len(marks)
        stop = self._text.find("\n", begin, begin + _WINDOW)
        stop = stop if stop >= 0 else min(len(self._text), begin + _WINDOW)
        at = self._text.find(marks, begin, stop)
        while at >= 0 and (self._text[at - 1] == "`" or self._text[at + len(marks) : at + len(marks) + 1] == "`"):
            at = self._text.find(marks, at + 1, stop)
        if stop >= len(self._text) and not self._source.final and (at < 0 or at + len(marks) >= stop):
            raise More
        self._say(at + len(marks) if at >= 0 else begin)

    def _native(self, word: str, end: int) -> None:
        found = native(self._source, word, end)
        if found is None:
            self._spent += 64
            if (
                self._source.final
                and self._source.skip(end) >= len(self._text)
                and not word.endswith("=")
                and self._apart()
            ):
                self._take(Found(end=len(self._text), cut=""))
            elif self._wraps(end):
                self._drop(end)
            else:
                self._say(end)
            return
        place = self._place(self._at, behind_row(self._source, self._before(self._at), found.end))
        special = not word.startswith("<") or word[1:2] in "|｜" or word.startswith("<start_function")
        if found.calls and found.cut is None and not found.last:
            found.end = behind_calls(self._source, found.end)
        if found.header or belongs(place, found, self._tools, special=special):
            self._take(found)
        else:
            self._spent += found.end - self._at
            self._doubt = self._doubt or any(call.spills for call in found.calls)
            line = self._text.find("\n", end) if found.code and place.before.strip() else -1
            self._say(line if line >= 0 else found.end)

    def _wraps(self, end: int) -> bool:
        """Whether a call of another format stands directly behind an opener."""
        at = self._source.skip(end)
        if not self._source.final and native_soon(self._text, at):
            raise More
        opened = INSIDE.match(self._text, at)
        if opened is None or opened[0] not in BY_OPENER or self._before(self._at).strip():
            return False
        inner = native(self._source, opened[0], opened.end())
        return inner is not None and bool(inner.items)

    def _take(self, found: Found) -> None:
        whole = found.cut is None and not (found.last or found.code or any(call.fault for call in found.calls))
        if not whole and self._is_thought():
            return
        self._drop(found.end)
        for item in found.items:
            if isinstance(item, Call):
                self._add(item)
            elif item.thought:
                self.thoughts.append(item.text)
            elif item.text:
                self.content.add(item.text)
                self.content.gap()
        if found.cut is not None:
            self.cut = self._tools.plain(found.cut)
            self._over = True
        if found.last:
            self._over = True

    def _add(self, call: Call) -> None:
        """Take a call; behind one that may go on here, it may be a quotation in a string of that one."""
        if (self._doubt or self._source.spilled) and not call.fault:
            call.fault = _NOT_RUN
        self._doubt = self._doubt or call.spills
        self.calls.append(call)

    # Fences

    def _inside_fence(self, closing: re.Pattern[str]) -> None:
        found = closing.search(self._text, self._at)
        if found is None or (found.end() >= len(self._text) and not self._source.final):
            if self._source.final:
                self._say(len(self._text))
                return
            self._say(max(self._at, self._text.rfind("\n") + 1))
            raise More
        self._say(found.end())
        self._fence, self._fresh = None, False

    def _begin_fence(self, found: re.Match[str]) -> None:
        begin = found.end() - len(found["fence"].lstrip())
        head = fences.opening(self._source, begin)
        if head is None:
            self._say(begin)
            self._code(found["fence"].lstrip())
            return
        self._source.begins = self.content.empty and not self.calls
        result = fences.read(self._source, head, called=bool(self.calls))
        if result is not None:
            self._say(begin)
            self._take(result)
            return
        self._say(head.end())
        self._fence = fences.closing(head["marks"])


def read_all(text: str, tools: Toolset) -> Scanner:
    """A whole text, read."""
    scanner = Scanner(tools)
    scanner.read(text, final=True)
    return scanner
