"""Robots: whether a site's robots.txt lets us read a page, and how long it asks us to wait between two (RFC 9309)."""

from __future__ import annotations

from urllib.robotparser import RobotFileParser

from lmagent.core.errors import ToolError
from lmagent.web.client import AGENT, WebAnswer
from lmagent.web.links import WebLink

LONGEST_PAUSE = 10.0
"""Seconds that a site may have us wait; a longer pause would look like a hang."""


class Robots:
    """The rules of one origin."""

    def __init__(self, answer: WebAnswer) -> None:
        self._rules = RobotFileParser()
        lines = answer.body.decode("utf-8", "replace").splitlines() if answer.status == 200 else []
        if answer.status >= 500:  # as the RFC says of a site whose rules cannot be read
            lines = ["User-agent: *", "Disallow: /"]
        self._rules.parse(lines)

    def check(self, link: WebLink) -> None:
        """Raise ToolError if the page is not for programs."""
        if not self._rules.can_fetch(AGENT, str(link)):
            raise ToolError(f"{link.origin}/robots.txt keeps programs from {link.path}, so it was not fetched.")

    @property
    def pause(self) -> float:
        try:
            return min(float(self._rules.crawl_delay(AGENT) or 0), LONGEST_PAUSE)
        except ValueError:
            return 0.0
