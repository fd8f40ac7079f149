"""Robots: whether a site's robots.txt lets us read a page, and how long it asks us to wait between two (RFC 9309)."""

from __future__ import annotations

import re
from urllib.parse import unquote

from msgspec import Struct, field

from lmagent.core.errors import ToolError
from lmagent.web.client import AGENT, WebAnswer
from lmagent.web.links import WebLink

LONGEST_PAUSE = 10.0
"""Seconds that a site may have us wait; a longer pause would look like a hang."""

_OWN = AGENT.partition("/")[0]
_LINE = re.compile(r"[ \t]*([A-Za-z-]+)[ \t]*:[ \t]*([^#]*)")
_SECONDS = re.compile(r"\d{1,6}(?:\.\d{1,6})?", re.ASCII)
_CLOSED = "User-agent: *\nDisallow: /"


class _Group(Struct):
    """The rules for the programs of one name: whether each pattern of a path is allowed, and the pause."""

    named: bool = False
    rules: list[tuple[bool, str]] = field(default_factory=list[tuple[bool, str]])
    pause: float = 0.0


class Robots:
    """The rules of one origin."""

    def __init__(self, answer: WebAnswer) -> None:
        text = answer.body.decode("utf-8-sig", "replace") if answer.status == 200 else ""
        if answer.status >= 500:  # as the RFC says of a site whose rules cannot be read
            text = _CLOSED
        group = _group(text)
        self._rules, self.pause = group.rules, group.pause

    def check(self, link: WebLink) -> None:
        """Raise ToolError if the page is not for programs. The longest pattern decides, and of two equal ones the one
        that allows."""
        path = unquote(link.path)
        matching = [(len(pattern), allowed) for allowed, pattern in self._rules if _matches(pattern, path)]
        if matching and not max(matching)[1]:
            raise ToolError(f"{link.origin}/robots.txt keeps programs from {link.path}, so it was not fetched.")


def _group(text: str) -> _Group:
    """Return the rules for our name; without any, those for all programs."""
    own, every = _Group(), _Group()
    current: list[_Group] = []
    naming = False
    for line in text.replace("\r", "\n").split("\n"):
        if (found := _LINE.match(line)) is None:
            continue
        name, value = found[1].lower(), found[2].strip()
        if name == "user-agent":
            current = current if naming else []
            naming = True
            if (group := {"*": every, _OWN: own}.get(value.lower())) is not None:
                group.named = True
                current.append(group)
        elif name in ("allow", "disallow", "crawl-delay"):
            naming = False
            for group in current:
                if name == "crawl-delay":
                    group.pause = min(float(value), LONGEST_PAUSE) if _SECONDS.fullmatch(value) else 0.0
                elif value:
                    group.rules.append((name == "allow", unquote(value)))
    return own if own.named else every


def _matches(pattern: str, path: str) -> bool:
    """Return whether a pattern matches the beginning of a path; `*` is any text, `$` at its end the end of the path.

    Each text between two stars is looked for once, so no pattern takes long.
    """
    first, *others = pattern.removesuffix("$").split("*")
    last = others.pop() if others and pattern.endswith("$") else None
    if not path.startswith(first):
        return False
    at = len(first)
    for text in others:
        at = path.find(text, at)
        if at < 0:
            return False
        at += len(text)
    if last is not None:
        return path.endswith(last) and len(path) - len(last) >= at
    return not pattern.endswith("$") or at == len(path)
