"""Concealed: secrets that must not be shown although a server sends them back: its key, a password in its URL.

A server may quote the key that it refuses, a library the header that it cannot send. Code that opens a server registers
its secrets here; code that quotes an answer removes them here. They are kept per process: an error does not know which
key was sent.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

SHORTEST = 6
"""Characters below which a secret is too common to be searched in texts."""

_HIDDEN = "…"
_PLACEHOLDER = (
    r"(lm[-_ ]?studio|ollama|llama[-_. ]?cpp|koboldcpp|localai|openai|openrouter|localhost|lmagent"
    r"|anything|nothing|bearer|api[-_ ]?key|((sk-)?(no|not)[-_ ]?)?(key[-_ ]?)?(needed|required))"
)
"""Placeholders for a key that is not needed: no secrets, and frequent in other texts."""

_secrets: set[str] = set()


def conceal(key: str, url: str = "") -> None:
    """Keep a key, and the password and parameters of a URL, from being shown."""
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
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text


def shown(url: str) -> str:
    """Return a URL as it may be shown: without user, password and parameters."""
    try:
        parts = urlsplit(url)
        return hidden(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")))
    except ValueError:
        return hidden(url)
