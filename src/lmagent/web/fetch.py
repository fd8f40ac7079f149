"""Fetch: from an address to the page, through redirects, robots.txt and the pause that each host gets.

Each hop passes the same guard. A redirect to another host needs a permission of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from lmagent.core.errors import ToolError
from lmagent.core.ports import Clock
from lmagent.core.tool import AskHost
from lmagent.sandbox.hosts import parse_pattern
from lmagent.sandbox.proxy import Resolve, system_resolve
from lmagent.web.client import FetchLimits, WebAnswer, WebClient
from lmagent.web.guard import WebGuard
from lmagent.web.links import WebLink
from lmagent.web.pages import Fetched, Pages
from lmagent.web.robots import Robots

if TYPE_CHECKING:
    import ssl

    from lmagent.web.stealth import StealthClient

REDIRECTS = 5

PAUSE = 0.5
"""Seconds between two pages of one host, at least."""

ROBOTS = FetchLimits(whole=15.0, body=512 * 1024)
"""RFC 9309 asks for 500 KiB of rules to be read."""

_MOST_HOSTS = 1000


class Web:
    """Fetches pages for the sessions of a process.

    Args:
        hosts: patterns of hosts that may be of this machine or network, as in `sandbox_hosts`.
        stealth: pages are asked for as a browser does, with the extra `stealth`; robots.txt never is.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        clock: Clock,
        *,
        resolve: Resolve = system_resolve,
        limits: FetchLimits = FetchLimits(),  # noqa: B008 - frozen
        tls: ssl.SSLContext | None = None,
        stealth: bool = False,
    ) -> None:
        self._hosts = tuple(hosts)
        self._guard = WebGuard([parse_pattern(host) for host in hosts], resolve)
        self._clock = clock
        self._client: WebClient | StealthClient = WebClient(self._guard, limits, tls)
        if stealth:
            from lmagent.web.stealth import StealthClient

            self._client = StealthClient(self._guard, limits)
        self._rules_client = WebClient(self._guard, ROBOTS, tls)
        self._robots: dict[str, dict[str, Robots]] = {}
        self._turns: dict[str, float] = {}
        self.pages = Pages(clock)

    async def page(self, session: str, link: WebLink, call: tuple[str, int], ask: AskHost) -> Fetched:
        """Return a page of the session: the kept one, or a new one. `call` are the selector and characters asked for.

        Raise ToolError if it cannot be had.
        """
        page = self.pages.get(session, link, call)
        if page is None:
            last, answer = await self._follow(session, link, ask)
            kind = answer.headers.get("content-type", "")
            page = Fetched(last, kind, answer.body, answer.cut, self._clock.monotonic())
            self.pages.keep(session, link, page)
        page.shown.add(call)
        return page

    async def turn(self, session: str, link: WebLink) -> None:
        """Wait for the turn to visit a page by other means. Raise ToolError if its host's rules forbid it."""
        self.admit(link)
        robots = await self._rules(session, link)
        robots.check(link)
        await self._wait(link.host, robots.pause)

    def admit(self, link: WebLink) -> None:
        """Raise ToolError for a page of this machine or network that is not listed."""
        self._guard.admit(link.target)

    def listed_for(self, link: WebLink) -> tuple[str, ...]:
        """Return the listed hosts that the scripts of a page may reach: those of this machine or network only if the
        page is from there, since a page from elsewhere must not steer requests in here."""
        near = self._guard.is_near(link.target)
        return tuple(host for host in self._hosts if near or parse_pattern(host).reach == "public")

    def forget(self, session: str) -> None:
        """Forget the pages and rules of a session."""
        self.pages.forget(session)
        self._robots.pop(session, None)

    async def _follow(self, session: str, link: WebLink, ask: AskHost) -> tuple[WebLink, WebAnswer]:
        """Return the last address and its answer. Each new host is asked about, and gets its pause."""
        visited = set[str]()
        at = link
        for _ in range(REDIRECTS + 1):
            self.admit(at)
            if at.host != link.host and self._guard.is_near(at.target):  # a page must not steer requests in here
                raise ToolError(f"{link} leads to {at}, which is near: no redirect is followed there.")
            if at.host not in (link.host, *visited) and not await ask(at.target.host, at.target.port):
                raise ToolError(f"{link} leads to {at}, and connecting to {at.host} was not allowed.")
            robots = await self._rules(session, at)
            robots.check(at)
            if at.host not in visited:
                await self._wait(at.host, robots.pause)
            visited.add(at.host)
            answer = await self._client.get(at)
            if answer.status == 200:
                return at, answer
            if not 300 <= answer.status < 400 or not (location := answer.headers.get("location")):
                raise ToolError(_failure(at, answer))
            at = at.join(location)
        raise ToolError(f"{link} redirects more than {REDIRECTS} times, lastly to {at}.")

    async def _wait(self, host: str, pause: float) -> None:
        """Wait for the host's turn: all sessions of the process together are one visitor."""
        now = self._clock.monotonic()
        turn = max(now, self._turns.get(host, 0.0))
        if len(self._turns) >= _MOST_HOSTS:
            self._turns = {known: at for known, at in self._turns.items() if at > now}
        self._turns[host] = turn + max(PAUSE, pause)
        await self._clock.sleep(turn - now)

    async def _rules(self, session: str, link: WebLink) -> Robots:
        known = self._robots.setdefault(session, {})
        if link.origin not in known:
            known[link.origin] = Robots(await self._robots_txt(link))
        return known[link.origin]

    async def _robots_txt(self, link: WebLink) -> WebAnswer:
        """Return the origin's answer. A redirect to another host is not followed: no rules of this one are there."""
        answer, at = WebAnswer(404, {}), link.join("/robots.txt")
        for _ in range(REDIRECTS + 1):
            answer = await self._rules_client.get(at, "text/plain, */*;q=0.5")
            if not 300 <= answer.status < 400 or not (location := answer.headers.get("location")):
                break
            there = at.join(location)
            if there.host != at.host:
                break
            at = there
        return answer


def _failure(link: WebLink, answer: WebAnswer) -> str:
    known = {status.value: status.phrase for status in HTTPStatus}
    text = f"{link} answers {answer.status} {known.get(answer.status, '')}".rstrip()
    if answer.status == 429 and (seconds := re.fullmatch(r"[0-9]{1,9}", answer.headers.get("retry-after", ""))):
        return f"{text}: ask again in {int(seconds[0])} s."
    return f"{text}."
