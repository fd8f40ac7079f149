"""Trimmed: a page in HTML whose parsing takes bounded time and memory.

The parser builds as many nodes as a page asks for, searches its stack of open elements for most tags, and compares each
attribute with those before it. So a page can ask for hours with a few megabytes. This scan runs in time proportional to
the page, counts what a parser would build, and leaves out scripts, styles, comments, tags that are too deep (not their
text), attributes of overlong tags, and the rest of the page when the sum is too high.
"""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

NODES = 100_000
"""Elements, attributes and texts; the parser needs about 160 bytes for each."""

KEPT = 2 << 20
"""Bytes, without scripts and styles."""

DEPTH = 120
"""Elements in each other; real pages have at most about 60."""

_TAG = re.compile(rb"<(/?)([A-Za-z][^\s/>]*)[^>]*(?:>|$)|<!--")
_LONGEST = 2048
"""Bytes of a tag with attributes: a longer one holds data, such as a picture."""

_VOID = frozenset(b"area base br col embed hr img input link meta param source track wbr".split())
_SIBLINGS = frozenset(b"p li dt dd td tr th thead tbody tfoot option colgroup".split())
"""Elements that the next one of their kind ends, so pages leave their end tags out. Not so in SVG and MathML."""

_FORMATTING = frozenset(b"a b big code em font i nobr s small strike strong tt u".split())
"""Elements that a parser opens anew in each block until they are closed."""

_MOST_FORMATTING = 30
_REMOVED = {name: re.compile(rb"</" + name + rb"\b[^>]*>?", re.I) for name in (b"script", b"style")}
_COMMENT_END = re.compile(rb"(?<=<!--)-?>|--!?>")


class Trimmed(Struct):
    """The page that is parsed, and whether a part of it is missing."""

    html: bytes
    cut: bool


def trimmed(body: bytes) -> Trimmed:
    """Return a page in an encoding that ASCII is a part of."""
    scan = _Scan(body)
    scan.run()
    return Trimmed(b"".join(scan.pieces), scan.cut)


class _Scan:
    def __init__(self, body: bytes) -> None:
        self.pieces: list[bytes] = []
        self.cut = False
        self._body = body
        self._open: Counter[bytes] = Counter()
        self._depth = self._formatting = self._nodes = self._kept = 0

    def run(self) -> None:
        body, at = self._body, 0
        while (found := _TAG.search(body, at)) is not None:
            self._text(body[at : found.start()])
            if self._nodes > NODES or self._kept > KEPT:
                self.cut = True
                return
            name = (found[2] or b"").lower()
            if not name:
                self._nodes += 1
                self._keep(b" ")
                at = self._end(_COMMENT_END, found.end())
            elif name in _REMOVED and not found[1]:
                self._nodes += 1
                self._keep(b" ")
                at = self._end(_REMOVED[name], found.end())
            else:
                self._tag(found, name)
                at = found.end()
        self._text(body[at:])

    def _text(self, text: bytes) -> None:
        """Keep a text up to the bounds; each "<" in it may be a node of its own."""
        room = KEPT - self._kept
        if len(text) > room or text.count(b"<") > NODES:
            self.cut, self._kept = True, KEPT + 1
            text = text.replace(b"<", b" ")[: max(0, room)]
        self._nodes += text.count(b"<")
        self.pieces.append(text)
        self._kept += len(text)

    def _keep(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self._kept += len(piece)

    def _end(self, end: re.Pattern[bytes], at: int) -> int:
        """Return the place after a comment, script or style; the end of the page if it is not closed."""
        found = end.search(self._body, at)
        return found.end() if found else len(self._body)

    def _tag(self, found: re.Match[bytes], name: bytes) -> None:
        """Count a tag, and keep the bytes that are parsed."""
        self._nodes += 2 + self._formatting
        length = found.end() - found.start()
        tag = found[0] if length <= _LONGEST else b"<" + found[1] + name[:_LONGEST] + b">"
        if found[1]:
            self._close(name)
        elif not self._opened(name, tag):
            tag = b" "
        self._keep(tag)

    def _opened(self, name: bytes, tag: bytes) -> bool:
        """Count a start tag; return whether it is parsed."""
        bare = tag if b'"' in tag or b"'" in tag else tag.replace(b"/", b" ")  # which separates attributes, too
        self._nodes += max(tag.count(b"="), len(tag) // 12, len(bare.split()))
        foreign = self._open[b"svg"] or self._open[b"math"]
        if name in _VOID or (name in _SIBLINGS and not foreign) or (foreign and tag.endswith(b"/>")):
            return True
        if self._depth >= DEPTH or (name in _FORMATTING and self._formatting >= _MOST_FORMATTING):
            return False
        self._open[name] += 1
        self._depth += 1
        self._formatting += name in _FORMATTING
        return True

    def _close(self, name: bytes) -> None:
        if self._open[name] > 0:
            self._open[name] -= 1
            self._depth -= 1
            self._formatting -= name in _FORMATTING
