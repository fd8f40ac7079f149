"""Feeds: the entries of RSS and Atom, newest as the feed has them. Other XML is no feed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from lmagent.web.extract import CUT, WebPage
from lmagent.web.markdown import Writer, flat

ENTRIES = 100
SUMMARY = 2000
"""Characters of an entry's text."""

ELEMENTS = 50_000
"""Elements up to which a feed is read."""

_PIECE = 64 << 10
_ROOTS = frozenset({"rss", "feed", "rdf"})


def read_feed(body: bytes, url: str) -> WebPage | None:
    """Return the entries of a feed; None for other XML, which also has the documents that define entities."""
    if re.search(rb"<!(?:DOCTYPE|ENTITY)", body[:_PIECE]):
        return None
    reading = _Reading(url)
    try:
        for at in range(0, len(body), _PIECE):
            if not reading.take(body[at : at + _PIECE]):
                break
    except ParseError:
        if not reading.entries:
            return None
        reading.cut = True
    return reading.page() if reading.is_feed else None


class _Reading:
    def __init__(self, url: str) -> None:
        self.entries: list[str] = []
        self.is_feed = False
        self.cut = False
        self._url = url
        self._parser: Any = XMLPullParser(("start", "end"))
        self._writer = Writer(url)
        self._elements = self._within = 0
        self._title = ""

    def take(self, piece: bytes) -> bool:
        """Read a piece; return whether to continue."""
        self._parser.feed(piece)
        for event, element in self._parser.read_events():
            self._elements += 1
            name = _name(element)
            if self._elements == 1:
                self.is_feed = name in _ROOTS
                if not self.is_feed:
                    return False
            if name in ("item", "entry"):
                self._within += 1 if event == "start" else -1
                if event == "end" and not self._within:
                    self.entries.append(self._entry(element))
                    element.clear()
            elif name == "title" and event == "end" and not self._within and not self._title:
                self._title = flat("".join(element.itertext()))
            if self._elements > 2 * ELEMENTS or len(self.entries) >= ENTRIES:
                self.cut = True
                return False
        return True

    def page(self) -> WebPage:
        heading = f"# {self._title}" if self._title else ""
        parts = [heading, *self.entries, CUT if self.cut else ""]
        return WebPage(self._title, "\n\n".join(filter(None, parts)), self._writer.links, "feed")

    def _entry(self, entry: Element) -> str:
        title = flat(_first(entry, "title")) or "(without a title)"
        date = flat(_first(entry, "pubdate", "published", "updated", "date"))
        link = next(_links(entry), "")
        text = self._text(_first(entry, "description", "summary", "encoded", "content"))
        return "\n\n".join(filter(None, (f"## {self._writer.link(title, link)}", date, text)))

    def _text(self, html: str) -> str:
        if "<" not in html:
            return html.strip()[:SUMMARY]
        from selectolax.lexbor import LexborHTMLParser

        from lmagent.web.trimmed import trimmed

        page = LexborHTMLParser(trimmed(html[: 20 * SUMMARY].encode("utf-8", "replace")).html.decode())
        text = self._writer.write(page.body) if page.body is not None else ""
        return text if len(text) <= SUMMARY else f"{text[:SUMMARY]} …"


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2].lower()


def _first(entry: Element, *names: str) -> str:
    for name in names:
        for child in entry:
            if _name(child) == name and (text := "".join(child.itertext()).strip()):
                return text
    return ""


def _links(entry: Element) -> Iterator[str]:
    for child in entry:
        if _name(child) == "link" and child.get("rel", "alternate") == "alternate":
            yield child.get("href") or (child.text or "").strip()
