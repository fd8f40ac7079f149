"""Hosts: patterns of hosts, in rules of tools that connect: `web_fetch(docs.python.org)`, `effect:net(*.python.org)`.

    docs.python.org         this host, at the usual ports 80 and 443
    docs.python.org:8443    this host, at this port
    *.python.org            the names below python.org, not python.org itself
    *                       every host

Deny and ask rules reach further than allow rules: a name also covers the names below it, and all ports unless it has
one. The host of a call has one spelling (lower case, `xn--`, four decimal numbers, brackets around IPv6) and its port.
"""

from __future__ import annotations

import re

_PATTERN = r"(?P<name>\[[0-9a-f:.]+\]|(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)(?::(?P<port>[1-9][0-9]{0,4}))?"
_USUAL = ("80", "443")


def normalised(pattern: str) -> str:
    """Return the pattern in its plain form; empty for every host. Raise ValueError if it names no host."""
    text = pattern.lower().removeprefix("domain:").removesuffix(".")
    if text == "*":
        return ""
    if not text.isascii():
        raise ValueError("write the host in its xn-- form")
    found = re.fullmatch(_PATTERN, text)
    if found is None:
        raise ValueError("it names no host; write it without https:// and without a path")
    name, port = found["name"], found["port"]
    if name.startswith("["):
        from ipaddress import IPv6Address  # rare

        name = f"[{IPv6Address(name[1:-1])}]"
    elif re.fullmatch(r"[0-9.]+", name) and name.count(".") != 3:
        raise ValueError("an address is written as four decimal numbers")
    return f"{name}:{port}" if port else name


def covers(pattern: str, host: str, *, below: bool) -> bool:
    """Return whether a pattern in its plain form covers `host:port`; `below` for a deny or ask rule."""
    if not pattern:
        return True
    (name, port), (wanted, at) = _parts(pattern), _parts(host)
    if port != at and (port or not (below or at in _USUAL)):
        return False
    if name.startswith("*."):
        return wanted.endswith(name[1:])
    return wanted == name or (below and wanted.endswith(f".{name}"))


def plain(host: str) -> str:
    """Return the host of `host:port` as users and rules write it: without a usual port."""
    name, port = _parts(host)
    return name if port in _USUAL else host


def _parts(text: str) -> tuple[str, str]:
    name, colon, port = text.rpartition(":")
    return (name, port) if colon and port.isdigit() else (text, "")
