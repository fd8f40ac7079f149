"""Tools: `web_fetch`, and `web_search` where a search engine is configured.

What only a call needs is imported by the call: no first request waits for it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from lmagent.core.ports import Clock
from lmagent.core.sandbox import Sandbox
from lmagent.core.tool import Tool, ToolContext, ToolOutput

if TYPE_CHECKING:
    from lmagent.web.fetch import Web

SHOWN = 10_000
"""Characters of a page that a call shows."""


ALIASES = ("fetch", "fetch_url", "webfetch", "read_url", "open_url", "get_url", "browse", "web_read")


GetBrowserSandbox = Callable[[Path, Sequence[Path]], Awaitable[Sandbox]]
"""Returns a sandbox for an empty folder, in which other folders can be read. Raises SandboxError."""


class Browser(Struct, frozen=True):
    """A browser: its program and its sandbox."""

    program: str
    sandbox: GetBrowserSandbox


class WebFetch(Struct, frozen=True):
    """Arguments of web_fetch."""

    url: str
    css_selector: Annotated[str, Meta(description="only the elements that match")] = ""
    max_chars: Annotated[int, Meta(ge=1)] = SHOWN


class WebFetchJs(Struct, frozen=True):
    """Arguments of web_fetch_js."""

    url: str
    wait_seconds: Annotated[int, Meta(description="time for its scripts", ge=1, le=30)] = 5
    css_selector: Annotated[str, Meta(description="only the elements that match")] = ""


class WebScreenshot(Struct, frozen=True):
    """Arguments of web_screenshot."""

    url: str
    output: Annotated[str, Meta(description="a .png; default: named like the host")] = ""
    wait_seconds: Annotated[int, Meta(description="time for its scripts", ge=1, le=30)] = 5


class WebSearch(Struct, frozen=True):
    """Arguments of web_search."""

    query: str
    n: Annotated[int, Meta(ge=1, le=20)] = 5


_TAKEN = {
    **dict.fromkeys(("uri", "link", "address", "href", "website"), "url"),
    **dict.fromkeys(("selector", "css"), "css_selector"),
    **dict.fromkeys(("prompt", "reason", "description", "explanation"), ""),
}
"""Arguments of other agents' tools that fetch, by ours."""


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
        self._has_browser = False
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

    def _question(self, url: str, how: str = "") -> str:
        """Return what the user decides on; `how` the page is read. Raise ToolError if it would not be read anyway."""
        from lmagent.web.links import parse_link

        link = parse_link(url)
        self.web.admit(link)
        return f"Fetch a page from {link.host}{how}:\n{link}"

    def fetch(self) -> Tool:
        """Return `web_fetch`, or `web_fetch_stealth`."""
        name = "web_fetch_stealth" if self._stealth else "web_fetch"

        async def run(arguments: WebFetch, context: ToolContext) -> ToolOutput:
            from lmagent.web.reading import read, with_hint

            selector = arguments.css_selector.strip()
            output = await read(self.web, arguments.url, selector, arguments.max_chars, context)
            return with_hint(output) if self._has_browser else output

        return Tool(
            name=name,
            description="web_fetch for sites that refuse programs." if self._stealth else "Read a web page.",
            arguments=WebFetch,
            effect="net",
            run=run,
            replay_safe=True,
            deferred=True,
            unlisted=("css_selector", "max_chars"),  # a page that is cut names them
            aliases=() if self._stealth else ALIASES,
            renames={
                **_TAKEN,
                **dict.fromkeys(("max_length", "max_characters", "length", "limit"), "max_chars"),
            },
            implied={
                "format": ("markdown", "text"),
                "output_format": ("markdown", "text"),
                "raw": (False,),
                "start_index": (0,),
                "method": ("get",),
            },
            summary=lambda arguments: f"{name} {_shown(arguments.url)}",
            preview=lambda arguments, _: self._question(
                arguments.url, ", under a browser's name" if self._stealth else ""
            ),
            hosts=_hosts,
        )

    def fetch_js(self, browser: Browser) -> Tool:
        """Return `web_fetch_js`. The catalogue need not list it: the result of `web_fetch` names it where it helps."""
        self._has_browser = True

        async def run(arguments: WebFetchJs, context: ToolContext) -> ToolOutput:
            from lmagent.web.reading import read_rendered

            selector = arguments.css_selector.strip()
            return await read_rendered(self.web, browser, arguments.url, arguments.wait_seconds, selector, context)

        return Tool(
            name="web_fetch_js",
            description="Read a web page that scripts fill, in a browser. Slow: try web_fetch first.",
            arguments=WebFetchJs,
            effect="net",
            run=run,
            replay_safe=True,
            deferred=True,
            aliases=("fetch_js", "browse_js", "render_page", "browser_fetch"),
            renames={
                **_TAKEN,
                **dict.fromkeys(("wait", "timeout", "wait_for", "delay"), "wait_seconds"),
            },
            summary=lambda arguments: f"web_fetch_js {_shown(arguments.url)}",
            preview=lambda arguments, _: self._question(arguments.url, " in a browser, with its scripts"),
            hosts=_hosts,
        )

    def screenshot(self, browser: Browser) -> Tool:
        """Return `web_screenshot`. It writes: its host is asked about when it runs, like one that a command reaches."""

        async def run(arguments: WebScreenshot, context: ToolContext) -> ToolOutput:
            from lmagent.web.reading import picture

            return await picture(self.web, browser, arguments, context)

        def check(arguments: WebScreenshot, context: ToolContext) -> str:
            from lmagent.tools.drawing import own_picture, require_png

            question = self._question(arguments.url, " in a browser, with its scripts and pictures")
            require_png(picture_path(arguments))
            own_picture(context, picture_path(arguments))
            return question

        return Tool(
            name="web_screenshot",
            description="Show a web page in a browser, and write a picture of its first screen into the workspace.",
            arguments=WebScreenshot,
            effect="write",
            run=run,
            deferred=True,
            aliases=("screenshot", "take_screenshot", "browser_screenshot", "screenshot_page"),
            renames={
                **_TAKEN,
                **dict.fromkeys(("wait", "timeout", "wait_for", "delay"), "wait_seconds"),
                **dict.fromkeys(("path", "output_path", "file", "filename", "save_to"), "output"),
            },
            implied={"format": ("png",), "type": ("png",), "full_page": (False,)},
            summary=lambda arguments: f"web_screenshot {_shown(arguments.url)} → {_shown(picture_path(arguments))}",
            preview=check,
            targets=lambda arguments: (picture_path(arguments),),
        )


def picture_path(arguments: WebScreenshot) -> str:
    """Return the path of the picture: named like the host, unless the call names another."""
    from lmagent.tools.paths import lexical
    from lmagent.web.links import parse_link

    if arguments.output:
        return lexical(arguments.output)
    return f"{re.sub(r'[^a-z0-9.]+', '-', parse_link(arguments.url).host).strip('-.')}.png"


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


def _hosts(arguments: WebFetch | WebFetchJs) -> tuple[str, ...]:
    from lmagent.web.links import parse_link

    return (str(parse_link(arguments.url).target),)


def _shown(text: str, limit: int = 120) -> str:
    from lmagent.tools.sanitize import one_line

    return one_line(text.strip(), limit)
