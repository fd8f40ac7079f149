"""Scan: reads a reply once, from one possible beginning to the next: calls, thoughts and text.

The place of markup decides: in code, quotations, lists and inside a sentence it is text; elsewhere a format decides
whether it is a call.
"""

from __future__ import annotations

import re

from lmagent.core.patterns import late
from lmagent.providers.formats import fences
from lmagent.providers.formats.base import Found, FoundCall, Source, Toolset, end_of
from lmagent.providers.formats.markup import (
    BY_OPENER,
    CALLS_AND_THOUGHTS,
    CLOSING,
    INSIDE,
    LINES,
    QUIET,
    RESULTS,
    THOUGHTS,
    after_calls,
    after_row,
    may_hold_markup,
    native,
    quiet,
)
from lmagent.providers.formats.place import MarkupPlace, belongs
from lmagent.providers.formats.thoughts import CLOSES, OPENS, Pairing, ends_template_thought, quoted

_WINDOW = 2000
_EFFORT = 8
"""Limit for the characters read for text that is no call, as a multiple of the text's length."""
_QUESTION = late(r"\s*\n\**Question\b[^\n]*\s*\Z")
_CONTINUES = late(r" [a-z]|[,;:.?!)]")
_NOT_RUN = "not run: the call before it is damaged, and this one may be a part of its text"


_LAST = 300
"""Characters at the end of the text that are kept to decide about the markup after it."""


class Content:
    """Collects the text for the user; `last` is its end.

    Text on both sides of removed markup is joined by a blank line, or by a blank inside a line. Blanks at the end are
    held back until more text follows; a text without removals keeps them.
    """

    def __init__(self) -> None:
        self.last = ""
        self._pieces: list[str] = []
        self._blank = ""
        self._gap = False
        self._whole = True

    @property
    def empty(self) -> bool:
        return not self._pieces

    @property
    def gapped(self) -> bool:
        return self._gap

    def add(self, text: str) -> None:
        if self._gap:
            bare = text.lstrip()
            if not bare:
                self._blank += text
                return
            lead = self._blank + text[: len(text) - len(bare)]
            self._blank = "" if not self._pieces else "\n\n" if "\n" in lead or not lead else " "
            text, self._gap = bare, False
        body = text.rstrip()
        if body:
            piece = self._blank + body
            self._pieces.append(piece)
            self.last = (self.last + piece[-_LAST:])[-_LAST:]
            self._blank = text[len(body) :]
        else:
            self._blank += text

    def gap(self) -> None:
        self._gap, self._whole = True, False

    def forget(self) -> str:
        """Remove all text so far, which was thought, and return it."""
        thought = "".join(self._pieces)
        self._pieces.clear()
        self._blank = self.last = ""
        self.gap()
        return thought

    def whole(self) -> str:
        return "".join(self._pieces) + (self._blank if self._whole else "")


class Scanner:
    """Reads one reply.

    Args:
        calls: whether to look for calls; otherwise only thoughts are taken out.

    Attributes:
        content: the visible text.
        cut: the name of a call that the end of the text cut off; None if none was.
    """

    def __init__(self, text: str, tools: Toolset, *, calls: bool = True) -> None:
        self.content = Content()
        self.thoughts: list[str] = []
        self.calls: list[FoundCall] = []
        self.cut: str | None = None
        self._text = text
        self._tools = tools
        self._with_calls = calls
        self._here, self._event = CALLS_AND_THOUGHTS if calls else THOUGHTS
        self._source = Source(text, tools)
        self._pairing = Pairing(text)
        self._at = self._line = 0
        self._fresh = True
        self._closed_thoughts = self._said_since = self._over = self._doubt = False
        self._since_thought = self._spent = 0
        self._closer = (-1, -1)
        self._fence: re.Pattern[str] | None = None
        self._examples: set[str] = set()

    def read(self) -> None:
        if not may_hold_markup(self._text) or (not self._with_calls and self._text.lstrip().startswith("{")):
            self._say(len(self._text))  # text, or requested JSON: tags in its strings are text
        while self._at < len(self._text) and not self._over:
            self._step()

    # The next place

    def _step(self) -> None:
        if self._fence is not None:
            closed = self._fence.search(self._text, self._at)
            self._say(closed.end() if closed else len(self._text))
            if closed:
                self._fence, self._fresh = None, False
            return
        found = self._next()
        self._say(found.start() if found else len(self._text))
        if found is None:
            return
        if found.lastgroup == "mark":
            self._markup(found["mark"])
        else:
            self._begin_line(found)

    def _next(self) -> re.Match[str] | None:
        if self._spent + self._source.effort > _EFFORT * len(self._text) + 100_000:
            return None  # a text made to be slow: the rest is text
        if self._fresh and self._text[self._at] != "\n" and (found := self._here.match(self._text, self._at)):
            return found
        return self._event.search(self._text, self._at)

    # Beginnings of lines

    def _begin_line(self, found: re.Match[str]) -> None:
        kind = found.lastgroup or ""
        if kind in ("code", "quote", "item"):
            self._quoted_line(found)
            return
        if kind == "fence":
            self._begin_fence(found)
            return
        format = LINES[int(kind[1:])]
        begin = found.start(kind)
        self._source.begins = self.content.empty and not self.calls
        result = format.find(self._source, begin, found[kind])
        accepted = result is not None and (
            self._stands_alone(result) if format.bare else not self._shown(begin, result, format.name)
        )
        if result is not None and accepted:
            self._say(begin)
            self._take(result)
            return
        self._spent += (result.end if result else min(begin + 64, len(self._text))) - begin
        self._say(begin + 1)
        if result is not None and (format.bare or result.calls):
            self._say(result.end)
        self._fresh = False

    def _shown(self, begin: int, found: Found, name: str) -> bool:
        """Return whether calls with markup at the beginning of a line are an example, or continue one before."""
        place = MarkupPlace(self._source, self._before(begin), found.end, _QUESTION.sub("", self.content.last))
        if found.calls and found.cut is None and (name in self._examples or place.as_example()):
            self._examples.add(name)
            return True
        return False

    def _quoted_line(self, found: re.Match[str]) -> None:
        """Read a line of code, of a quotation or of a list: it has no call, but a thought may end in it."""
        closing = CLOSING.search(self._text, found.start(), found.end())
        opened = closing is not None and any(tag in self._text[found.start() : closing.start()] for tag in OPENS)
        if closing is not None and not opened and not quoted(self._text, closing.start(), closing.end()):
            self._say(closing.start())
            self._close_thought(closing.end())
            return
        end = found.end()
        for opened in INSIDE.finditer(self._text, found.start(), found.end()) if self._with_calls else ():
            # Markup that is opened here and closed below belongs to the quotation, with all text between.
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
        """Return whether calls without markup are on lines of their own, and no example."""
        end = end_of(self._text, found.end)
        if found.cut is not None:
            return True
        at = self._source.skip(end)
        found.end = end
        place = self._place(self._at, end)
        if "\n" not in self._text[end:at] and place.after():
            return False
        while word := quiet(self._text, at):
            at = self._source.skip(at + len(word))
        return at >= len(self._text) or self.content.empty or not place.as_example()

    def _begin_fence(self, found: re.Match[str]) -> None:
        begin = found.end() - len(found["fence"].lstrip())
        head = fences.opening(self._text, begin)
        if head is None:
            self._say(begin)
            self._code(found["fence"].lstrip())
            return
        self._source.begins = self.content.empty and not self.calls
        result = fences.read(self._source, head, called=bool(self.calls)) if self._with_calls else None
        if result is not None:
            self._say(begin)
            self._take(result)
            return
        self._say(head.end())
        self._fence = fences.closing(head["marks"])

    # Markup

    def _markup(self, word: str) -> None:
        end = self._at + len(word)
        if word[0] == "`":
            self._code(word)
        elif word in CLOSES and not quoted(self._text, self._at, end):
            self._close_thought(end)
        elif word in OPENS:
            self._open_thought(word, end)
        elif not self._with_calls:
            self._say(end)
        elif word in BY_OPENER:
            self._native(word, end)
        elif word in RESULTS and (self.calls or not self._before(self._at).strip()):
            self._result(RESULTS[word], end)
        elif word in QUIET and self._says_nothing(word, end):
            self._drop(end)
        else:
            self._say(end)

    def _result(self, closing: str, end: int) -> None:
        """Read a block of a result: it is invented if a call precedes it; a call quoted in it never counts."""
        close = self._source.find(closing, end)
        if close < 0 and self.calls and self._is_thought():
            return
        if self.calls:
            self._drop(close + len(closing) if close >= 0 else len(self._text))
        else:
            self._say(close + len(closing) if close >= 0 else end)

    def _says_nothing(self, word: str, end: int) -> bool:
        """Return whether a token is left over: alone in its line, beside markup, or at either end of the reply."""
        place = self._place(self._at, end)
        before, after = place.before.strip(), place.after()
        if (before and after) or (word == "</s>" and "<s>" in before):
            return False
        if self.content.gapped or not (before or after):
            return True
        at = self._source.skip(end)
        if at >= len(self._text):
            return True
        if not before and self.content.empty:
            return not place.goes_on()
        following = INSIDE.match(self._text, at)
        return following is not None and following[0][0] != "`"

    def _code(self, marks: str) -> None:
        """Read inline code: the text between two equal runs of marks in a line is text."""
        begin = self._at + len(marks)
        stop = self._text.find("\n", begin, begin + _WINDOW)
        stop = stop if stop >= 0 else min(len(self._text), begin + _WINDOW)
        at = self._text.find(marks, begin, stop)
        while at >= 0 and (self._text[at - 1] == "`" or self._text[at + len(marks) : at + len(marks) + 1] == "`"):
            at = self._text.find(marks, at + 1, stop)
        self._say(at + len(marks) if at >= 0 else begin)

    def _native(self, word: str, end: int) -> None:
        found = native(self._source, word, end)
        if found is None:
            self._spent += 64
            if self._source.skip(end) >= len(self._text) and not word.endswith("=") and self._apart():
                self._take(Found(end=len(self._text), cut=""))
            elif self._wraps(end):
                self._drop(end)
            else:
                self._say(end)
            return
        place = self._place(self._at, after_row(self._source, self._before(self._at), found.end))
        special = not word.startswith("<") or word[1:2] in "|｜" or word.startswith("<start_function")
        if found.calls and found.cut is None and not found.last:
            found.end = after_calls(self._source, found.end)
        if found.header or belongs(place, found, self._tools, special=special):
            self._take(found)
        else:
            self._spent += found.end - self._at
            self._doubt = self._doubt or any(call.fault or call.spills for call in found.calls)
            self._say(found.end)

    def _wraps(self, end: int) -> bool:
        opened = INSIDE.match(self._text, self._source.skip(end))
        if opened is None or opened[0] not in BY_OPENER or self._before(self._at).strip():
            return False
        inner = native(self._source, opened[0], opened.end())
        return inner is not None and bool(inner.items)

    def _take(self, found: Found) -> None:
        whole = found.cut is None and not (found.last or found.code or any(call.fault for call in found.calls))
        if not whole and self._is_thought():
            return
        begin = self._at
        self._drop(found.end)
        for item in found.items:
            if isinstance(item, FoundCall):
                item.at = begin
                self._add(item)
            elif item.thought:
                self.thoughts.append(item.text)
            elif item.text:
                self.content.add(item.text)
                self.content.gap()
        if found.cut is not None:
            self.cut = self._tools.plain(found.cut)
        self._over = found.cut is not None or found.last

    def _add(self, call: FoundCall) -> None:
        """Take a call; after a damaged one it may be a quotation in that one's text."""
        if (self._doubt or self._source.spilled) and not call.fault:
            call.fault = _NOT_RUN
        self._doubt = self._doubt or bool(call.fault) or call.spills
        self.calls.append(call)

    # Thoughts

    def _open_thought(self, word: str, end: int) -> None:
        if quoted(self._text, self._at, end):
            self._say(end)
            return
        before = self._before(self._at)
        joined = bool(before.strip()) and not MarkupPlace.ended(before)
        close, after = self._pairing.closing(self._at, word)
        if close < 0 and joined and self._line_goes_on(end):
            self._say(end)  # a mention
            return
        if close >= 0 and joined and "\n" not in self._text[end:close]:
            self._say(after)
            return
        close, after = (close, after) if close >= 0 else (len(self._text), len(self._text))
        self._end_thought(self._text[end:close], after)

    def _line_goes_on(self, at: int) -> bool:
        line = self._text.find("\n", at, at + _WINDOW)
        return bool(self._text[at : line if line >= 0 else at + _WINDOW].strip())

    def _close_thought(self, end: int) -> None:
        """Read a closing tag without an opening one: the template opened the thought, so all text before is thought.

        After a properly closed thought it is a leftover, unless there are calls between the two.
        """
        between = len(self.calls) > self._since_thought
        if not between and self._mentioned(end):
            self._say(end)
            return
        if self._closed_thoughts and not between:
            if self._said_since and not self._place(self._at, end).at_an_edge():
                self._say(end)
            else:
                self._drop(end)
            return
        thought = self.content.forget()
        del self.calls[self._since_thought if self._closed_thoughts else 0 :]
        self._doubt = self._source.spilled = False
        self._end_thought(thought, end)

    def _end_thought(self, thought: str, end: int) -> None:
        if thought.strip():
            self.thoughts.append(thought.strip())
        self._drop(end)
        self._closed_thoughts, self._since_thought, self._said_since = True, len(self.calls), False

    def _is_thought(self) -> bool:
        """Take a call or result that would end the reply as a thought, if it is in one that the template opened."""
        if self._closed_thoughts:
            return False
        if self._closer[0] < self._at:
            self._closer = ends_template_thought(self._text, self._at)
        begin, end = self._closer
        if begin < len(self._text):
            self._say(begin)
            self._close_thought(end)
        return begin < len(self._text)

    def _mentioned(self, end: int) -> bool:
        before = self._before(self._at)
        return not MarkupPlace.ended(before) and before.endswith(" ") and bool(_CONTINUES.match(self._text, end))

    # The place

    def _say(self, end: int) -> None:
        if end <= self._at:
            return
        piece = self._text[self._at : end]
        self.content.add(piece)
        line = self._text.rfind("\n", self._at, end)
        if line >= 0:
            self._line, self._fresh = line + 1, False
        elif piece.strip():
            self._fresh = False
        self._said_since = self._said_since or bool(piece.strip())
        self._at = end

    def _drop(self, end: int) -> None:
        """Skip markup up to `end`; a line begins after it."""
        self.content.gap()
        self._at = self._line = end
        self._fresh = True

    def _before(self, at: int) -> str:
        """Return the line before `at`: its beginning and its end."""
        line = self._text[self._line : min(self._line + 40, at)]
        if at - self._line > 40:
            line += self._text[max(self._line + 40, at - 200) : at]
        return line

    def _place(self, begin: int, end: int) -> MarkupPlace:
        return MarkupPlace(self._source, self._before(begin), end, self.content.last)

    def _apart(self) -> bool:
        """Return whether the line before this place has no text that it could belong to."""
        return MarkupPlace.ended(self._before(self._at)) and self._before(self._at)[-1:] not in tuple("\"'`([")
