"""The hosts that a command may reach, as `host:port` patterns, and the addresses that are never allowed.

  example.com               ports 80 and 443 (through a tunnel, 443 only)
  example.com:8443          this port only
  *.example.com             every name below example.com, not example.com itself
  127.0.0.1:8080            an address; with its port it may be a private one
  localhost:8080            this machine
  ip:nas.home:5000          a name that may resolve to an address of the local network
  any:packages.test:443     a name that may also resolve to a reserved address, such as those for tests, but not to
                            this machine, its link, or a cloud's metadata

A name is decided on as it is written. A host has exactly one accepted spelling: lower case, no trailing dot, `xn--` for
non-ASCII names, four decimal numbers, brackets around IPv6. Every other spelling is refused rather than understood,
because the resolver might understand it differently (`0x7f.1`, `2130706433`, `127.1` are all 127.0.0.1 to most of
them).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

from msgspec import Struct

from lmagent.core.errors import ConfigError

Address = IPv4Address | IPv6Address
Reach = Literal["public", "local", "reserved", "any"]
"""The addresses that a host may have: public; also those of this machine or network; also reserved ones, but none of
this machine; any, of a host whose address is listed."""

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}", re.ASCII)
_IPV6 = re.compile(r"\[([0-9A-Fa-f:.]{2,45})\]", re.ASCII)
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^\[\]:@/?#\\\s]+)(?::([1-9][0-9]{0,4}))?", re.ASCII)

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of this machine, or of a sandbox inside."""

_SPECIAL = tuple(
    ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16"),
        *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # Azure's metadata server has a public address
        # IETF assignments (Teredo, ORCHID), documentation, 6to4, direct delegation.
        *("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
)
"""IANA's special-purpose registry, without the networks that are reached like any other host."""

_IPV6_GLOBAL = IPv6Network("2000::/3")
"""Without NAT64, mapped, link-local, unique-local and multicast addresses."""

_LOCAL = tuple(
    map(
        ip_network,
        ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"),
    )
)
_IPV6_LOCAL = IPv6Network("fc00::/7")
_NO_HOST = tuple(
    map(
        ip_network,
        # This machine, its link, multicast, Azure's metadata; and IPv6 addresses that hold one of IPv4.
        ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "168.63.129.16/32", "2001::/32", "2002::/16"),
    )
)
"""Addresses that no name may have, however far it may reach."""

_METADATA = tuple(map(ip_address, ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254")))
"""Metadata servers of clouds in ranges that count as local; the others are link-local."""


class Target(Struct, frozen=True):
    """A host in its one spelling, without brackets, and a port."""

    host: str
    port: int

    @property
    def address(self) -> Address | None:
        return _address(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class HostPattern(Struct, frozen=True):
    """A pattern of hosts that may be reached.

    Attributes:
        host: a name or an address; for a wildcard, the part after `*.`.
        port: None is 80 and 443; in a tunnel, whose content is opaque, it is 443.
        wildcard: it matches the names below `host`, and not `host`.
    """

    host: str
    port: int | None = None
    wildcard: bool = False
    reach: Reach = "public"

    def matches(self, target: Target, *, tunnel: bool = False) -> bool:
        if target.port not in ((self.port,) if self.port else (443,) if tunnel else (80, 443)):
            return False
        return target.host.endswith(f".{self.host}") if self.wildcard else target.host == self.host


def parse_target(authority: str, default_port: int | None = None) -> Target:
    """Return host and port of a request, which is untrusted input.

    `authority` is `host:port`, or `host` if there is a default port. Raises ValueError.
    """
    if not authority.isascii():
        raise ValueError("the host is not ASCII")
    host, port = _split(authority)
    port = port or default_port
    if port is None:
        raise ValueError("the port is missing")
    return Target(_host(host), port)


def parse_pattern(text: str) -> HostPattern:
    """Return the pattern that the user wrote; raises ConfigError."""
    try:
        return _pattern(text.strip())
    except ValueError as error:
        raise ConfigError(
            f"{text!r} cannot be allowed: {error}",
            fix="write host:port, for example pypi.org:443, *.example.com or 127.0.0.1:8080",
        ) from None


def reach_of(patterns: Sequence[HostPattern], target: Target, *, tunnel: bool = False) -> Reach | None:
    """Return the addresses that a target may resolve to, by the most generous pattern; None if no pattern matches."""
    found = {pattern.reach for pattern in patterns if pattern.matches(target, tunnel=tunnel)}
    order: tuple[Reach, ...] = ("any", "reserved", "local", "public")
    return next((reach for reach in order if reach in found), None)


def is_public(address: Address) -> bool:
    """Return whether an address is that of an ordinary server on the internet."""
    is_global = isinstance(address, IPv4Address) or address in _IPV6_GLOBAL
    return is_global and not any(address in network for network in _SPECIAL)


def is_reachable(address: Address, reach: Reach) -> bool:
    """Return whether a connection to this address of a host is allowed."""
    if reach == "any" or is_public(address):
        return True
    if reach == "reserved":
        is_host = isinstance(address, IPv4Address) or address in _IPV6_GLOBAL or address in _IPV6_LOCAL
        return is_host and address not in _METADATA and not any(address in network for network in _NO_HOST)
    return reach == "local" and address not in _METADATA and any(address in network for network in _LOCAL)


def is_private(target: Target) -> bool:
    """Return whether a target is certainly not on the internet, as far as its name or address shows."""
    address = target.address
    return target.host == "localhost" or target.host.endswith(".localhost") or bool(address and not is_public(address))


def _pattern(text: str) -> HostPattern:
    anywhere = text.startswith("any:")
    local = text.startswith("ip:") or anywhere
    text = text.removeprefix("any:").removeprefix("ip:")
    wildcard = text.startswith("*.")
    host, port = _split(text.removeprefix("*."))
    if not host.isascii():
        raise ValueError("write the name in its xn-- form")
    host = _host(host)
    address = _address(host)
    if wildcard and (address or "." not in host):
        raise ValueError("a * matches names below a domain of at least two labels, as in *.example.com")
    if local and wildcard:
        raise ValueError("ip: and any: name one host")
    private = is_private(Target(host, 1))
    if (private or local) and port is None:
        raise ValueError("for a host that is not on the internet, the port must be named")
    if address and not address.is_loopback and (address.is_unspecified or address.is_multicast or address.is_reserved):
        raise ValueError("the address is no host's")
    wide: Reach = "reserved" if anywhere else "local" if local or private else "public"
    return HostPattern(host, port, wildcard, "any" if address and private else wide)


def _split(authority: str) -> tuple[str, int | None]:
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ValueError("it is not of the form host:port")
    port = int(match[2]) if match[2] else None
    if port is not None and port > 65535:
        raise ValueError("there is no such port")
    return match[1], port


def _host(text: str) -> str:
    if inside := _IPV6.fullmatch(text):
        address = IPv6Address(inside[1])
        if address.ipv4_mapped or address.sixtofour or address.teredo:
            raise ValueError("an IPv4 address inside an IPv6 address; write the IPv4 address")
        return str(address)
    host = text.lower().removesuffix(".")
    if _IPV4.fullmatch(host):
        if text.endswith("."):
            raise ValueError("an address does not end in a dot")
        return host
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise ValueError("the host is neither a name nor an address")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        raise ValueError("an address is written as four decimal numbers")
    return host


def _address(host: str) -> Address | None:
    if ":" in host:
        return IPv6Address(host)
    return IPv4Address(host) if _IPV4.fullmatch(host) else None
