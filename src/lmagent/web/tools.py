"""Tools: `web_fetch`, and `web_search` where a search engine is configured.

What only a call needs is imported by the call: no first request waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from lmagent.core.ports import Clock
from lmagent.core.tool import Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from lmagent.web.fetch import Web

SHOWN = 10_000
"""Characters of a page that a call shows."""


ALIASES = ("fetch", "fetch_url", "webfetch", "read_url", "open_url", "get_url", "browse", "web_read")


class WebFetch(Struct, frozen=True):
    """Arguments of web_fetch."""

    url: str
    css_selector: Annotated[str, Meta(description="only the elements that match")] = ""
    max_chars: Annotated[int, Meta(ge=1)] = SHOWN


class WebSearch(Struct, frozen=True):
    """Arguments of web_search."""

    query: str
    n: Annotated[int, Meta(ge=1, le=20)] = 5


class WebTools:
    """The tool that fetches, with the pages that it has read.

    Args:
        hosts: those that may be of this machine or network.
        stealth: the tool is `web_fetch_stealth`.
    """

    def __init__(self, hosts: Sequence[str], clock: Clock, *, stealth: bool = False) -> None:
        self._hosts = hosts
        self._clock = clock
        self._stealth = stealth
        self._web: Web | None = None

    @property
    def web(self) -> Web:
        if self._web is None:
            from lmagent.web.fetch import Web

            self._web = Web(self._hosts, self._clock, stealth=self._stealth)
        return self._web

    async def end(self, session: str) -> None:
        """Forget the pages of a session that is over."""
        if self._web is not None:
            self._web.forget(session)

    def _question(self, url: str) -> str:
        """Return what the user decides on. Raise ToolError if the page would not be fetched anyway."""
        from lmagent.web.links import parse_link

        link = parse_link(url)
        self.web.admit(link)
        how = ", under a browser's name" if self._stealth else ""
        return f"Fetch a page from {link.host}{how}:\n{link}"

    def fetch(self) -> Tool:
        """Return `web_fetch`, or `web_fetch_stealth`."""
        name = "web_fetch_stealth" if self._stealth else "web_fetch"

        async def run(arguments: WebFetch, context: ToolContext) -> ToolOutput:
            from lmagent.web.reading import read

            return await read(self.web, arguments.url, arguments.css_selector.strip(), arguments.max_chars, context)

        return Tool(
            name=name,
            description="web_fetch for sites that refuse programs."
            if self._stealth
            else "Read a web page, as Markdown.",
            arguments=WebFetch,
            effect="net",
            run=run,
            replay_safe=True,
            deferred=True,
            aliases=() if self._stealth else ALIASES,
            renames={
                **dict.fromkeys(("uri", "link", "address", "href", "website"), "url"),
                **dict.fromkeys(("selector", "css"), "css_selector"),
                **dict.fromkeys(("max_length", "max_characters", "length", "limit"), "max_chars"),
                **dict.fromkeys(("prompt", "reason", "description", "explanation"), ""),
            },
            implied={
                "format": ("markdown", "text"),
                "output_format": ("markdown", "text"),
                "raw": (False,),
                "start_index": (0,),
                "method": ("get",),
            },
            summary=lambda arguments: f"{name} {_shown(arguments.url)}",
            preview=lambda arguments, _: self._question(arguments.url),
            hosts=_hosts,
        )


def search_tool(endpoint: str) -> Tool:
    """Return `web_search`, which asks the search engine at an address."""

    async def run(arguments: WebSearch, _: ToolContext) -> ToolOutput:
        from lmagent.web.search import search

        return await search(endpoint, arguments.query, arguments.n)

    def hosts(_: WebSearch) -> tuple[str, ...]:
        from lmagent.web.search import link_of

        return (str(link_of(endpoint).target),)

    def question(arguments: WebSearch, _: ToolContext) -> str:
        from lmagent.web.search import link_of

        return f"Search at {link_of(endpoint, arguments.query).host} for:\n{_shown(arguments.query, 500)}"

    return Tool(
        name="web_search",
        description="Search the web: titles, addresses, snippets.",
        arguments=WebSearch,
        effect="net",
        run=run,
        replay_safe=True,
        deferred=True,
        aliases=("websearch", "search_web", "internet_search", "google_search", "searxng_search"),
        renames={
            **dict.fromkeys(("q", "search_query", "search_term", "keywords"), "query"),
            **dict.fromkeys(("count", "num_results", "max_results", "limit", "top_k", "num"), "n"),
            **dict.fromkeys(("reason", "description", "explanation"), ""),
        },
        summary=lambda arguments: f"web_search {_shown(arguments.query)}",
        preview=question,
        hosts=hosts,
    )


def _hosts(arguments: WebFetch) -> tuple[str, ...]:
    from lmagent.web.links import parse_link

    return (str(parse_link(arguments.url).target),)


def _shown(text: str, limit: int = 120) -> str:
    from lmagent.tools.sanitize import one_line

    return one_line(text.strip(), limit)
