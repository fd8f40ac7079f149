"""Main text: chooses the part of an HTML page that is read.

Parts that are not the main text are removed first: hidden ones, landmarks such as navigation, parts with a name such as
"sidebar" or "share", and blocks that are mostly links. From the body, the choice then goes down as long as one element
holds nearly all that is left. If hardly anything is left, the page is read again with fewer removals: a thread of
comments, or an index of links, may be all that there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

from msgspec import Struct, field
from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from lmagent.core.errors import ToolError
from lmagent.web.charset import encoding_of
from lmagent.web.extract import CUT, LARGEST, WebPage
from lmagent.web.markdown import Writer, absolute, flat, is_data, words
from lmagent.web.trimmed import trimmed

Level = Literal["names", "landmarks", "all"]
LEVELS: tuple[Level, ...] = ("names", "landmarks", "all")

ENOUGH = 250
"""Characters of a main text; with less, more of the page is read."""

DEEPEST = 150
"""Levels of elements that are looked at one by one; the text below them is taken whole."""

_NEARLY_ALL = 0.75
_LINKS = 0.6
"""The part of a block's text in links from which it is a menu."""

_MENU = 3
_TITLE = 300
"""Characters of a title that are kept."""

_CONTAINERS = words("article center div font form main section table tbody td tr")
_NEVER = "script, style, template, noscript, svg, iframe, object, canvas, select, textarea, input, button, datalist"
_LANDMARKS = words("aside dialog footer menu nav search")
_ROLES = words(
    "alert alertdialog banner complementary contentinfo dialog menu menubar navigation search status tablist toolbar"
)
_BLOCKS = words("article center div dl form header ol section table td ul")
_KEPT = words("body code h1 h2 h3 h4 h5 h6 html main pre")
_NAMES = words(
    "ad ads adsense advert advertisement affiliate backlink banner breadcrumb breadcrumbs byline "
    "comment comments consent cookie cookies copyright disqus editsection feedback foot footer gdpr headerlink "
    "login masthead menu modal nav navbar navbox navigation newsletter overlay pager pagination paywall popup "
    "postprofile preheader print promo rail recommendations recommended regwall related respond share sharedaddy "
    "sharing sidebar signature signin signup similar skip social sponsor sponsored subscribe tagcloud taglist "
    "tags toc toolbar topbar trending votecell widget"
)
_PAIRS = (("screen", "reader"), ("sr", "only"), ("visually", "hidden"), ("more", "stories"), ("most", "viewed"))
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


class Weight(Struct):
    """Characters of an element's text, and those of them in links."""

    text: int = 0
    links: int = 0


class Removal(Struct):
    """Removes the parts of a parsed page that are not its main text, and weighs the rest."""

    level: Level
    heading: LexborNode | None = None  # the page's first h1: no name removes what holds it
    weights: dict[int, Weight] = field(default_factory=dict[int, Weight])

    def weigh(self, node: LexborNode, depth: int = 0) -> Weight:
        """Return the weight of an element after the removals in it."""
        total = Weight()
        child = node.child
        while child is not None:
            following = child.next
            if child.is_text_node:
                total.text += len(" ".join((child.text_content or "").split()))
            elif child.is_element_node:
                weight = self._child(child, depth + 1)
                total.text += weight.text
                total.links += weight.links
            child = following
        if node.tag == "a":
            total.links = total.text
        self.weights[node.mem_id] = total
        return total

    def _child(self, node: LexborNode, depth: int) -> Weight:
        if self._is_removed(node):
            node.decompose()
            return Weight()
        weight = self.weigh(node, depth) if depth < DEEPEST else Weight(len(flat(node.text())))
        if self.level != "all" and self._is_menu(node, weight):
            node.decompose()
            return Weight()
        return weight

    def _is_removed(self, node: LexborNode) -> bool:
        attributes = node.attributes
        if _is_hidden(attributes):
            return True
        tag = node.tag or ""
        if self.level == "all" or (tag in _KEPT and tag != "a"):
            return False
        role = (attributes.get("role") or "").lower()
        named = self.level == "names" and _is_named(attributes)
        if tag in _LANDMARKS or role in _ROLES or named:
            return not self._holds_heading(node)
        return False

    def _holds_heading(self, node: LexborNode) -> bool:
        return self.heading is not None and _holds(node, self.heading)

    def _is_menu(self, node: LexborNode, weight: Weight) -> bool:
        if node.tag not in _BLOCKS or not weight.text or weight.links < _LINKS * weight.text:
            return False
        return len(node.css("a")) >= _MENU and not self._holds_heading(node)


def read_html(body: bytes, content_type: str, url: str, selector: str = "") -> WebPage:
    """Return the main text of a page, or the elements that match a selector, for which no time is certain."""
    whole = body[:LARGEST]
    encoding = encoding_of(whole, content_type)
    if encoding.startswith(("utf-16", "utf-32")):
        whole, encoding = whole.decode(encoding, "replace").encode("utf-8", "replace"), "utf-8"
    source = trimmed(whole)
    html = source.html.decode(encoding, "replace")
    page = LexborHTMLParser(html)
    title, base = _title(page), _base(page, url)
    text, links = _selected(page, url, base, selector) if selector else _main(html, base)
    if source.cut or len(body) > LARGEST:
        text = f"{text}\n\n{CUT}".lstrip()
    return WebPage(title, text, links, "html")


def _main(html: str, base: str) -> tuple[str, int]:
    best = ("", 0)
    for level in LEVELS:
        writer = Writer(base)
        text = _read(LexborHTMLParser(html), level, writer)
        if level == "all" and len(text) < 2 * len(best[0]):
            return best
        best = (text, writer.links)
        if len(text) >= ENOUGH:
            break
    return best


def _read(page: LexborHTMLParser, level: Level, writer: Writer) -> str:
    if frames := page.css("frameset frame"):
        return _frames(page, frames, writer)
    body = page.body
    if body is None:
        return ""
    quiet = [_flat_text(node) for node in page.css("noscript")]
    _remove(page, _NEVER)
    if level == "all" and not _flat_text(body):  # a page that a script would fill
        return "\n\n".join(filter(None, quiet))
    removal = Removal(level, page.css_first("h1"))
    removal.weigh(body)
    chosen = body if level == "all" else _choose(page, body, removal.weights)
    text = writer.write(chosen)
    heading = removal.heading
    if heading is None or _holds(chosen, heading):
        return text
    return f"{writer.write(heading)}\n\n{text}".strip()


def _choose(page: LexborHTMLParser, body: LexborNode, weights: dict[int, Weight]) -> LexborNode:
    """Return the element with the main text: the one that the page names so, or the one that holds nearly all."""
    chosen = body
    for marked in ("main, [role=main]", "article"):
        found = page.css(marked)
        if len(found) == 1 and _size(weights, found[0]) >= _size(weights, chosen) / 2:
            chosen = found[0]
    while True:
        inner = max(_elements(chosen), key=lambda node: _size(weights, node), default=None)
        if inner is None or inner.tag not in _CONTAINERS or (inner.tag == "table" and is_data(inner)):
            return chosen
        if _size(weights, inner) < _NEARLY_ALL * _size(weights, chosen):
            return chosen
        chosen = inner


def _selected(page: LexborHTMLParser, url: str, base: str, selector: str) -> tuple[str, int]:
    _remove(page, _NEVER)
    try:
        found = page.css(selector)
    except SelectolaxError:
        raise ToolError(
            f"{selector!r} is no CSS selector. Nothing was read.", data={"code": "invalid_arguments"}
        ) from None
    ids = {node.mem_id for node in found}
    outermost = [node for node in found if not any(above.mem_id in ids for above in _above(node))]
    if not outermost:
        raise ToolError(
            f"No element of {url} matches {selector!r}. Leave css_selector out to read the page.",
            data={"code": "no_match"},
        )
    writer = Writer(base)
    texts: list[str] = []
    for node in outermost:
        Removal("all").weigh(node)
        texts.append(writer.write(node))
    return "\n\n".join(filter(None, texts)), writer.links


def _frames(page: LexborHTMLParser, frames: list[LexborNode], writer: Writer) -> str:
    """Return the links to a page's frames, and the text for browsers without them."""
    texts: list[str] = []
    for frame in frames:
        source = frame.attributes.get("src") or ""
        texts.append(f"Frame: {writer.link(frame.attributes.get('title') or source, source)}")
    without = page.css_first("noframes")
    inner = LexborHTMLParser(without.text()).body if without is not None else None  # a parser takes it as raw text
    return "\n\n".join([*texts, writer.write(inner) if inner is not None else ""]).strip()


def _title(page: LexborHTMLParser) -> str:
    title = page.css_first("title")
    named = _flat_text(title) if title is not None else ""
    if not named and (meta := page.css_first("meta[property='og:title']")) is not None:
        named = flat(meta.attributes.get("content") or "")
    if not named and (heading := page.css_first("h1")) is not None:
        named = _flat_text(heading)
    return named[:_TITLE]


def _base(page: LexborHTMLParser, url: str) -> str:
    base = page.css_first("base[href]")
    return absolute(url, (base.attributes.get("href") or "") if base is not None else "") or url


def _remove(page: LexborHTMLParser, selector: str) -> None:
    for node in page.css(selector):
        node.decompose()


def _is_hidden(attributes: dict[str, str | None]) -> bool:
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return True
    return _HIDDEN.search(attributes.get("style") or "") is not None


def _is_named(attributes: dict[str, str | None]) -> bool:
    """Return whether a class or the id has a name of parts that are not the main text."""
    names = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
    if not names.strip():
        return False
    for name in names[:500].split():
        parts = [part.lower() for part in _WORD.findall(name)]
        if not _NAMES.isdisjoint(parts) or any(pair in _PAIRS for pair in pairwise(parts)):
            return True
    return False


def _above(node: LexborNode) -> Iterator[LexborNode]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _holds(node: LexborNode, other: LexborNode) -> bool:
    return other.mem_id == node.mem_id or any(above.mem_id == node.mem_id for above in _above(other))


def _elements(node: LexborNode) -> Iterator[LexborNode]:
    child = node.child
    while child is not None:
        if child.is_element_node:
            yield child
        child = child.next


def _size(weights: dict[int, Weight], node: LexborNode) -> int:
    weight = weights.get(node.mem_id)
    return weight.text if weight else 0


def _flat_text(node: LexborNode) -> str:
    return flat(node.text())
