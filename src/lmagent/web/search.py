"""Search: results of the search engine that the user configured, by the JSON of SearXNG.

Only that host and port is connected to; it may be on this machine or network. Nothing but the query is sent.
"""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.core.errors import ToolError
from lmagent.core.outside import framed
from lmagent.core.tool import ToolOutput
from lmagent.sandbox.hosts import HostPattern
from lmagent.sandbox.proxy import Resolve, system_resolve
from lmagent.tools.sanitize import one_line
from lmagent.web.client import FetchLimits, WebAnswer, WebClient
from lmagent.web.guard import WebGuard
from lmagent.web.links import WebLink, parse_link

LONGEST = 400
"""Characters of a query."""

TITLE, ADDRESS, SNIPPET = 150, 500, 400
"""Characters of a result that are shown."""


class SearchResult(Struct, frozen=True):
    """A result of SearXNG."""

    url: str
    title: str | None = None
    content: str | None = None


class Results(Struct, frozen=True):
    """An answer of SearXNG."""

    results: list[SearchResult]


def link_of(endpoint: str, query: str = "") -> WebLink:
    """Return the address of a search. Raise ToolError if the query is too long."""
    if len(query) > LONGEST:
        raise ToolError(f"A query has at most {LONGEST} characters, not {len(query)}. Nothing was sent.")
    base = endpoint.partition("?")[0].rstrip("/")
    base = base if base.endswith("/search") else f"{base}/search"
    return parse_link(f"{base}?{urlencode({'q': query, 'format': 'json'})}")


async def search(endpoint: str, query: str, count: int, resolve: Resolve = system_resolve) -> ToolOutput:
    """Return the first results. Raise ToolError if the engine gives no answer."""
    link = link_of(endpoint, query)
    guard = WebGuard([HostPattern(link.target.host, link.target.port, reach="any")], resolve)
    answer = await WebClient(guard, FetchLimits(whole=30.0, body=2 << 20)).get(link, "application/json")
    found = [each for each in _results(link, answer) if each.url.lower().startswith(("https://", "http://"))][:count]
    rows = "\n".join(f"{number}. {_row(each)}" for number, each in enumerate(found, 1))
    text = framed(f"web search {link.host}", rows) if rows else f"{link.host} finds nothing for this query."
    return ToolOutput(text, {"query": query, "results": len(found)})


def _results(link: WebLink, answer: WebAnswer) -> list[SearchResult]:
    if answer.status == 403:
        raise ToolError(f"{link.origin} answers 403: `json` is probably missing in search.formats of its settings.yml.")
    if answer.status != 200:
        raise ToolError(f"{link.origin} answers {answer.status}, so nothing was found.")
    try:
        return decode_json(answer.body, Results).results
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ToolError(f"{link.origin} does not answer with the JSON of SearXNG.") from None


def _row(found: SearchResult) -> str:
    lines = (one_line(found.title or "", TITLE), one_line(found.url, ADDRESS), one_line(found.content or "", SNIPPET))
    return "\n   ".join(filter(None, lines))
