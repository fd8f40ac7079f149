"""Concealed: what must not be shown although a server says it: the key that it was sent, a password in its URL.

A server may quote the key that it refuses, a library the header that it cannot send. Whoever opens a server says here
what to hide; whoever quotes what came back asks here. Of the process, since an error does not know which key was sent.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

SHORTEST = 6
"""Characters below which something is too common to be looked for in texts."""

_HIDDEN = "…"
_PLACEHOLDER = (
    r"(lm[-_ ]?studio|ollama|llama[-_. ]?cpp|koboldcpp|localai|openai|openrouter|localhost|lmagent"
    r"|anything|nothing|bearer|api[-_ ]?key|((sk-)?(no|not)[-_ ]?)?(key[-_ ]?)?(needed|required))"
)
"""What is written where no key is needed: no secret, and part of many a text."""

_secrets: set[str] = set()


def conceal(key: str, url: str = "") -> None:
    """Do not show a key, nor the password and the parameters of a URL."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        given = [key, parts.password or "", *(value for _, value in parse_qsl(parts.query))]
    except ValueError:
        given = [key]
    for text in given:
        for secret in (*text.split(), *unquote(text).split()):
            if len(secret) >= SHORTEST and not re.fullmatch(_PLACEHOLDER, secret, re.IGNORECASE):
                _secrets.update((secret, quote(secret, safe="")))


def hidden(text: str) -> str:
    """A text without what is concealed."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text


def shown(url: str) -> str:
    """A URL as it may be shown: without user, password and parameters."""
    try:
        parts = urlsplit(url)
        return hidden(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")))
    except ValueError:
        return hidden(url)
