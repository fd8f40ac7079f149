"""Extract: the text of a page, as Markdown, by the kind of its content.

`trimmed.py` bounds the page before a parser sees it, `maintext.py` chooses the part to read, `markdown.py` writes it.
What cannot be bounded in this process is read in another one (`apart.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.tools.sanitize import one_line
from lmagent.web.charset import decoded

LARGEST = 10 << 20
"""Bytes of a page that are looked at."""

LARGEST_TEXT = 4 << 20
"""Bytes of a text without markup that are read."""

PRETTY = 1 << 20
"""Bytes of JSON up to which it is indented."""

CUT = "[The page is longer than what can be read: the rest was left out.]"

_HTML = re.compile(rb"\s*(?:<!--.{0,2000}?-->\s*)*<(?:!doctype html|html|head|body|title|meta|frameset)\b", re.I | re.S)
_XML = re.compile(rb"\s*<\?xml\b")
_READABLE = ("text/", "application/javascript", "application/yaml", "application/x-yaml", "application/toml")
_UNKNOWN = ("", "application/octet-stream", "binary/octet-stream", "text/plain", "application/unknown")


class WebPage(Struct, frozen=True):
    """A page as Markdown.

    Attributes:
        links: the number of links in the text.
        kind: html, text, markdown, json, feed, xml or pdf.
    """

    title: str
    text: str
    links: int
    kind: str


def extract(body: bytes, content_type: str, url: str, selector: str = "") -> WebPage:
    """Return the text of a page; `selector` (CSS) takes only the elements of an HTML page that match.

    `content_type` is the server's, with its charset. Raise ToolError if the page cannot be read.
    """
    kind = kind_of(body, content_type)
    if kind not in _KINDS:
        raise ToolError(f"{url} is {one_line(kind, 80)}, which is no text that can be read.", data={"code": "not_text"})
    if selector and kind != "html":
        raise ToolError(
            f"{url} is {kind}: css_selector is for HTML pages. Call it without.", data={"code": "invalid_arguments"}
        )
    return _KINDS[kind](body, content_type, url, selector)


def kind_of(body: bytes, content_type: str) -> str:
    """Return the kind of a page: by its declared type, and by its bytes if that says little. Others keep their type."""
    declared = content_type.partition(";")[0].strip().lower()
    if body.startswith(b"%PDF-") or declared == "application/pdf":
        return "pdf"
    if declared in ("text/html", "application/xhtml+xml"):
        return "html"
    if declared in _UNKNOWN:
        if _HTML.match(body[:4096]):
            return "html"
        if _XML.match(body[:200]):
            return "xml"
        return "text" if _is_text(body) else declared or "of an unknown kind"
    if declared in ("text/markdown", "text/x-markdown"):
        return "markdown"
    if declared.endswith(("/json", "+json")):
        return "json"
    if declared.endswith(("/xml", "+xml")) and declared != "image/svg+xml":
        return "xml"
    return "text" if declared.startswith(_READABLE) else declared


def _is_text(body: bytes) -> bool:
    return body.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" not in body[:65536]


def _html(body: bytes, content_type: str, url: str, selector: str) -> WebPage:
    if selector:
        from lmagent.web.apart import read_selected

        return read_selected(body[:LARGEST], content_type, url, selector)
    from lmagent.web.maintext import read_html  # loads the parser

    return read_html(body, content_type, url)


def _text(body: bytes, content_type: str, _url: str, _selector: str, kind: str = "text") -> WebPage:
    text = decoded(body[:LARGEST_TEXT], content_type)
    return WebPage("", _whole(text, len(body)), 0, kind)


def _markdown(body: bytes, content_type: str, url: str, selector: str) -> WebPage:
    page = _text(body, content_type, url, selector, "markdown")
    heading = re.search(r"^# +(\S.*)$", page.text[:20_000], re.MULTILINE)
    return WebPage(
        heading[1].strip() if heading else "", page.text, len(re.findall(r"\]\([^)\s]", page.text)), "markdown"
    )


def _json(body: bytes, content_type: str, url: str, selector: str) -> WebPage:
    try:
        if len(body) <= PRETTY:
            return WebPage("", msgspec.json.format(body, indent=2).decode(), 0, "json")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # shown as it came, so the model sees the mistake
    return _text(body, content_type, url, selector, "json")


def _xml(body: bytes, content_type: str, url: str, _selector: str) -> WebPage:
    from lmagent.web.feeds import read_feed

    feed = read_feed(body[:LARGEST], url)
    return feed if feed is not None else _text(body, content_type, url, "", "xml")


def _pdf(body: bytes, _content_type: str, url: str, _selector: str) -> WebPage:
    from lmagent.web.apart import read_pdf

    return read_pdf(body, url)


def _whole(text: str, size: int) -> str:
    return text if size <= LARGEST_TEXT else f"{text}\n\n{CUT}"


_KINDS: dict[str, Callable[[bytes, str, str, str], WebPage]] = {
    "html": _html,
    "text": _text,
    "markdown": _markdown,
    "json": _json,
    "xml": _xml,
    "pdf": _pdf,
}
