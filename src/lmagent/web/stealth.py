"""Stealth: one GET with the TLS and the headers of a browser, by libcurl (the extra `stealth`), through the same guard.

libcurl is given the judged address of the host, so it resolves nothing. It follows no redirect, reads no proxy of the
environment, keeps no cookie, and unpacks nothing: that is done in pieces here, as for all pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from lmagent.core.errors import ToolError
from lmagent.sandbox.hosts import Address
from lmagent.web.client import ACCEPT, Body, FetchLimits, WebAnswer, answer_with
from lmagent.web.guard import WebGuard
from lmagent.web.links import WebLink

if TYPE_CHECKING:
    from curl_cffi import Curl

BROWSER = "chrome136"
"""The browser that is imitated: one that all versions of the extra know."""

_END = 0xFFFFFFFF
"""libcurl's CURL_WRITEFUNC_ERROR."""

_TWO = anyio.CapacityLimiter(2)
"""Requests at once; each takes a thread."""


class StealthClient:
    """Sends requests as a browser would."""

    def __init__(self, guard: WebGuard, limits: FetchLimits) -> None:
        self._guard = guard
        self._limits = limits

    async def get(self, link: WebLink, accept: str = ACCEPT) -> WebAnswer:
        """Return the answer; a redirect is not followed. Raise ToolError if none comes within the limits."""
        addresses = await self._guard.addresses(link.target)
        exchange = _Exchange(link, self._limits)
        return await anyio.to_thread.run_sync(exchange.perform, addresses, abandon_on_cancel=True, limiter=_TWO)


class _Exchange:
    """One request and its answer."""

    def __init__(self, link: WebLink, limits: FetchLimits) -> None:
        self._link = link
        self._limits = limits
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body: Body | None = None
        self._fault: ToolError | None = None
        self._ended = False

    def perform(self, addresses: Sequence[Address]) -> WebAnswer:
        """Send the request and take the answer; a thread does it."""
        from curl_cffi import Curl, CurlError

        curl = Curl()
        try:
            self._prepare(curl, addresses)
            curl.perform()
        except CurlError as failure:
            if self._fault is not None:
                raise self._fault from None
            if not self._ended:
                raise ToolError(f"{self._link.origin} cannot be read: {str(failure)[:200]}") from None
        finally:
            curl.close()
        if self._body is None:
            return WebAnswer(self._status, self._headers, b"")
        return answer_with(self._body, self._headers, self._link)

    def _prepare(self, curl: Curl, addresses: Sequence[Address]) -> None:
        from curl_cffi import CurlOpt

        target, limits = self._link.target, self._limits
        shown = ",".join(f"[{address}]" if ":" in str(address) else str(address) for address in addresses)
        if curl.impersonate(BROWSER):
            raise ToolError(f"The installed curl_cffi cannot imitate {BROWSER}. Nothing was sent.")
        curl.setopt(CurlOpt.URL, str(self._link).encode())
        curl.setopt(CurlOpt.RESOLVE, [f"{target.host}:{target.port}:{shown}"])
        curl.setopt(CurlOpt.PROTOCOLS_STR, b"http,https")
        curl.setopt(CurlOpt.PATH_AS_IS, 1)  # robots.txt was asked about this very path
        curl.setopt(CurlOpt.FOLLOWLOCATION, 0)
        curl.setopt(CurlOpt.PROXY, b"")
        curl.setopt(CurlOpt.NOPROXY, b"*")
        curl.setopt(CurlOpt.ACCEPT_ENCODING, b"gzip, deflate")
        curl.setopt(CurlOpt.HTTP_CONTENT_DECODING, 0)
        curl.setopt(CurlOpt.CONNECTTIMEOUT_MS, int(limits.connect * 1000))
        curl.setopt(CurlOpt.TIMEOUT_MS, int(limits.whole * 1000))
        curl.setopt(CurlOpt.LOW_SPEED_LIMIT, 1)
        curl.setopt(CurlOpt.LOW_SPEED_TIME, max(1, int(limits.silence)))
        curl.setopt(CurlOpt.HEADERFUNCTION, self._take_header)
        curl.setopt(CurlOpt.WRITEFUNCTION, self._take_body)

    def _take_header(self, line: bytes) -> int:
        text = line.decode("latin-1")
        if text.startswith("HTTP/"):
            self._status, self._headers = int(text.split()[1]), {}
        elif ":" in text and self._body is None:  # what follows a body is not about it
            name, _, value = text.partition(":")
            self._headers[name.strip().lower()] = value.strip()
        return len(line)

    def _take_body(self, data: bytes) -> int:
        """Take a piece, or end the transfer."""
        try:
            if self._status == 200 and self._body is None:
                self._body = Body(self._headers.get("content-encoding", ""), self._limits.body)
            self._ended = self._body is None or self._body.feed(data)
        except ToolError as fault:
            self._fault, self._ended = fault, True
        return _END if self._ended else len(data)
