"""Links: the address of a page in its one spelling, or the reason why it is not fetched."""

from __future__ import annotations

import re
from urllib.parse import quote, urljoin

from msgspec import Struct

from lmagent.core.errors import ToolError
from lmagent.sandbox.hosts import Target, is_private, parse_target
from lmagent.tools.sanitize import one_line

LONGEST = 2048
"""Characters of an address. The user reads it before it is sent, and it can carry data away."""

_PORTS = {"http": 80, "https": 443}
_LINK = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?//([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", re.DOTALL)
_AS_THEY_ARE = "%/:@!$&'()*+,;=~-._?[]"


class WebLink(Struct, frozen=True):
    """An address: scheme, host and port in their one spelling, path and query in their form for a request."""

    scheme: str
    target: Target
    path: str

    @property
    def host(self) -> str:
        """The host as rules and headers name it: with its port unless that is the scheme's own, IPv6 in brackets."""
        text = str(self.target)
        return text.removesuffix(f":{self.target.port}") if self.target.port == _PORTS[self.scheme] else text

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}"

    def __str__(self) -> str:
        return self.origin + self.path

    def join(self, location: str) -> WebLink:
        """Return the address that a redirect of this one leads to. Raise ToolError if it is not fetched."""
        try:
            there = urljoin(str(self), location.strip())
        except ValueError as fault:  # half an IPv6 address, or letters like others
            raise _unfit(location, f"{fault}") from None
        return parse_link(there)


def parse_link(text: str) -> WebLink:
    """Return the address that a model or a server names. Raise ToolError if it is not fetched."""
    given = text.strip()
    if len(given) > LONGEST:
        raise ToolError(f"The address has {len(given):,} characters; at most {LONGEST:,} are sent.")
    if re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", given):
        raise _unfit(given, "it has control characters")
    bare = "://" not in given and not given.startswith("/")
    found = _LINK.fullmatch(f"//{given}" if bare else given)
    if found is None:
        raise _unfit(given, "it is not of the form https://host/path")
    scheme, authority, path, query = (found[1] or "").lower(), found[2], found[3], found[4] or ""
    if not bare and scheme not in _PORTS:
        raise _unfit(given, "only http and https are fetched")
    if "@" in authority:
        raise _unfit(given, "it has a name or password before the host, and none is sent")
    try:
        target = parse_target(authority, _PORTS.get(scheme, 443))
        if bare:  # a server of this machine rarely speaks TLS
            scheme = "http" if is_private(target) else "https"
            target = parse_target(authority, _PORTS[scheme])
    except ValueError as fault:
        raise _unfit(given, f"{fault}") from None
    return WebLink(scheme, target, quote((path or "/") + query, safe=_AS_THEY_ARE))


def _unfit(given: str, why: str) -> ToolError:
    return ToolError(f"{one_line(given)!r} cannot be fetched: {why}. Nothing was sent.")
