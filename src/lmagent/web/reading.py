"""Reading: a fetched page as the output of a call, framed as data from outside."""

from __future__ import annotations

import anyio
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.errors import ToolError
from lmagent.core.outside import framed
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.sandbox.hosts import parse_pattern
from lmagent.tools.drawing import own_picture, store_picture
from lmagent.tools.sanitize import one_line, printable
from lmagent.web.browser import named, render
from lmagent.web.extract import extract
from lmagent.web.fetch import Web
from lmagent.web.links import parse_link
from lmagent.web.pages import Fetched
from lmagent.web.tools import SHOWN, Browser, WebScreenshot, picture_path

PATIENCE = 30.0
"""Seconds that a page may take to be turned into text."""

LONGEST, MOST = 2_000_000, 200_000
"""Characters of a page that are kept as text, and that one call shows."""

_SPARE = 300
"""Bytes for the remarks after a page."""

_LITTLE = 400
"""Characters of a page of HTML that may be all that there is without its scripts."""

_ONE = anyio.CapacityLimiter(1)
"""Pages are turned into text one at a time, so that the memory for it is bounded."""


class PageText(Struct, frozen=True):
    """A page as text for the model: `head` has its title and address, `whole` is all of it in its frame."""

    title: str
    head: str
    body: str
    whole: str
    kind: str
    links: int


async def read(web: Web, url: str, selector: str, characters: int, context: ToolContext) -> ToolOutput:
    """Fetch a page, or take the kept one, and return its text. Raise ToolError if it cannot be had or read."""
    fetched = await web.page(context.session, parse_link(url), (selector, characters), context.ask_host)
    return output_of(fetched, await _turned(fetched, selector), url, min(characters, MOST))


async def read_rendered(
    web: Web, browser: Browser, url: str, seconds: int, selector: str, context: ToolContext
) -> ToolOutput:
    """Return the text of a page after its scripts have run. Raise ToolError if it cannot be had or read."""
    link = parse_link(url)
    await web.turn(context.session, link)
    page = await render(browser, link, seconds, web.listed_for(link), context.barred)
    fetched = Fetched(link, "text/html; charset=utf-8", page.html, page.cut, 0.0)
    remark = f"\n[not reached, since they are not the page's own site: {named(page.refused)}]" if page.refused else ""
    remark += f"\n[frames of the page that are not read: {page.frames}]" if page.frames else ""
    return output_of(fetched, await _turned(fetched, selector), url, SHOWN, remark)


async def picture(web: Web, browser: Browser, shot: WebScreenshot, context: ToolContext) -> ToolOutput:
    """Write a picture of a page into the workspace. Raise ToolError if it cannot be had.

    A host that is not listed is asked about like one that a command wants to reach.
    """
    link, output = parse_link(shot.url), picture_path(shot)
    web.admit(link)
    target = link.target
    old = own_picture(context, output)
    listed = web.listed_for(link)
    is_listed = any(parse_pattern(host).matches(target) for host in listed)
    if not is_listed and not await context.ask_host(target.host, target.port):
        raise ToolError(f"Connecting to {link.host} was not allowed, so there is no picture.", data={"code": "denied"})
    await web.turn(context.session, link)
    page = await render(browser, link, shot.wait_seconds, listed, context.barred, picture=True)
    written, facts = await store_picture(context, output, page.picture, old)
    missing = f" Not reached: {named(page.refused)}." if page.refused else ""
    return ToolOutput(f"The first screen of {link} is in {written}.{missing} vision can look at it.", facts)


def with_hint(output: ToolOutput) -> ToolOutput:
    """Return the output with a remark that names `web_fetch_js`, if the page has hardly any text."""
    if output.data["kind"] != "html" or len(output.content) > _LITTLE:
        return output
    return ToolOutput(f"{output.content}\n[little text: web_fetch_js runs the page's scripts first]", output.data)


async def _turned(fetched: Fetched, selector: str) -> PageText:
    try:
        with anyio.fail_after(PATIENCE):
            return await anyio.to_thread.run_sync(text_of, fetched, selector, abandon_on_cancel=True, limiter=_ONE)
    except TimeoutError:
        raise ToolError(f"{fetched.link} could not be turned into text within {PATIENCE:g} s.") from None


def text_of(fetched: Fetched, selector: str) -> PageText:
    """Turn a page into text. It may take seconds: a thread does it, so that the conversation does not stop."""
    page = extract(fetched.body, fetched.content_type, str(fetched.link), selector)
    title = one_line(page.title, 200)
    head = f"{f'# {title}' if title else ''}\n{fetched.link}\n\n".lstrip()
    body = printable(page.text[:LONGEST]).strip()
    return PageText(title, head, body, framed(_source(fetched), head + body), page.kind, page.links)


def output_of(fetched: Fetched, text: PageText, url: str, characters: int, remark: str = "") -> ToolOutput:
    """Return the beginning of a page, and a remark of ours; the whole becomes an artifact."""
    facts = {
        "page": {"url": str(fetched.link), "title": text.title},
        "url": url,
        "status": 200,
        "bytes": len(fetched.body),
        "kind": text.kind,
        "links": text.links,
    }

    def first(count: int) -> ToolOutput:
        shown = text.whole
        if len(text.body) > count:
            shown = framed(_source(fetched), text.head + _beginning(text.body, count))
            shown += f"\n[{count:,} of {len(text.body):,} characters; a css_selector or a larger max_chars shows more]"
        if fetched.cut or len(text.body) >= LONGEST:
            shown += "\n[the page is longer: only its beginning was read]"
        return ToolOutput(shown + remark, facts, full=text.whole)

    def fit(size: int) -> ToolOutput:
        count = min(characters, len(text.body))
        while count and len(first(count).content.encode("utf-8", "replace")) > size - _SPARE:
            count = count * 3 // 4
        return first(count)

    return replace(first(characters), fit=fit)


def _source(fetched: Fetched) -> str:
    return f"web {fetched.link.host}"


def _beginning(text: str, count: int) -> str:
    """Return so many characters at most, to the end of a line if one is near."""
    line = text.rfind("\n", count * 4 // 5, count)
    return text[: line if line > 0 else count]
