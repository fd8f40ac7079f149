"""Extract: the text of a page."""

from __future__ import annotations

from html.parser import HTMLParser

from msgspec import Struct

from lmagent.core.errors import ToolError


class WebPage(Struct, frozen=True):
    """A page as Markdown."""

    title: str
    text: str
    links: int
    kind: str


def extract(body: bytes, content_type: str, url: str, selector: str = "") -> WebPage:
    """Return the page. Raise ToolError if it cannot be read."""
    if b"\0" in body[:4096] or body.startswith(b"%PDF"):
        raise ToolError(f"{url} is no text ({content_type or 'unknown kind'}).")
    if selector:
        raise ToolError("css_selector is not understood here.")
    charset = content_type.partition("charset=")[2].strip(' "') or "utf-8"
    try:
        text = body.decode(charset, "replace")
    except LookupError:
        text = body.decode("utf-8", "replace")
    if "html" not in content_type:
        return WebPage("", text, 0, "text")
    walk = _Walk()
    walk.feed(text)
    return WebPage(
        " ".join(walk.title.split()), "\n".join(filter(None, map(str.strip, walk.parts))), walk.links, "html"
    )


class _Walk(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.title, self.parts, self.links = "", list[str](), 0
        self._inside = list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "title"):
            self._inside.append(tag)
        self.links += tag == "a"

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.parts.append(data)
        elif self._inside[-1] == "title":
            self.title += data
