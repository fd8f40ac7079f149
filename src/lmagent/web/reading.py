"""Reading: a fetched page as the output of a call, framed as data from outside."""

from __future__ import annotations

import anyio

from lmagent.core.errors import ToolError
from lmagent.core.outside import framed
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.tools.sanitize import one_line, printable
from lmagent.web.extract import WebPage, extract
from lmagent.web.fetch import Web
from lmagent.web.links import parse_link
from lmagent.web.pages import Fetched

PATIENCE = 30.0
"""Seconds that a page may take to be turned into text."""

_SPARE = 300
"""Bytes for the remarks after a page."""

_ONE = anyio.CapacityLimiter(1)
"""Pages are turned into text one at a time, so that the memory for it is bounded."""


async def read(web: Web, url: str, selector: str, characters: int, context: ToolContext) -> ToolOutput:
    """Fetch a page, or take the kept one, and return its text. Raise ToolError if it cannot be had or read."""
    fetched = await web.page(context.session, parse_link(url), (selector, characters), context.ask_host)
    page = await text_of(fetched, selector)
    return output_of(fetched, page, url, characters)


async def text_of(fetched: Fetched, selector: str) -> WebPage:
    """Return the page as text; a thread reads it, so that the conversation does not stop."""
    given = (fetched.body, fetched.content_type, str(fetched.link), selector)
    try:
        with anyio.fail_after(PATIENCE):
            return await anyio.to_thread.run_sync(extract, *given, abandon_on_cancel=True, limiter=_ONE)
    except TimeoutError:
        raise ToolError(f"{fetched.link} could not be turned into text within {PATIENCE:g} s.") from None


def output_of(fetched: Fetched, page: WebPage, url: str, characters: int) -> ToolOutput:
    """Return the beginning of a page; the whole becomes an artifact."""
    title, text = one_line(page.title, 200), printable(page.text).strip()
    source = f"web {fetched.link.host}"
    head = f"{f'# {title}' if title else ''}\n{fetched.link}\n\n".lstrip()
    whole = framed(source, head + text)
    facts = {
        "page": {"url": str(fetched.link), "title": title},
        "url": url,
        "status": 200,
        "bytes": len(fetched.body),
        "kind": page.kind,
        "links": page.links,
    }

    def first(count: int) -> ToolOutput:
        if len(text) <= count:
            shown = whole
        else:
            shown = framed(source, head + _beginning(text, count))
            shown += f"\n[{count:,} of {len(text):,} characters; a css_selector or a larger max_chars shows more]"
        if fetched.cut:
            shown += "\n[the page is longer: only its beginning was fetched]"
        return ToolOutput(shown, facts, full=whole)

    def fit(size: int) -> ToolOutput:
        count = min(characters, len(text))
        while count and len(first(count).content.encode("utf-8", "replace")) > size - _SPARE:
            count = count * 3 // 4
        return first(count)

    output = first(characters)
    return ToolOutput(output.content, facts, full=whole, fit=fit)


def _beginning(text: str, count: int) -> str:
    """Return so many characters at most, to the end of a line if one is near."""
    line = text.rfind("\n", count * 4 // 5, count)
    return text[: line if line > 0 else count]
