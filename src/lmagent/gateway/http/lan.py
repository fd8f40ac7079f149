"""LAN: this machine's addresses and names in its network, and the QR code for a phone."""

from __future__ import annotations

import io
import ipaddress
import socket
from contextlib import suppress

# Addresses for which the system names its outgoing address: RFC 5737, RFC 1918. Nothing is sent to them.
_ELSEWHERE = ("192.0.2.1", "10.0.0.1", "172.16.0.1", "192.168.0.1")


def addresses() -> list[str]:
    """Return this machine's addresses in its networks, the likeliest first; empty without a network."""
    found: list[str] = []
    for there in _ELSEWHERE:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((there, 9))
            found.append(str(probe.getsockname()[0]))
    with suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    return [address for address in dict.fromkeys(found) if _is_outward(address)]


def names() -> tuple[str, ...]:
    """Return the names that other machines of the network have for this one (RFC 6762: `.local`)."""
    name = socket.gethostname().partition(".")[0].lower()
    return (name, f"{name}.local") if name else ()


def _is_outward(address: str) -> bool:
    number = ipaddress.ip_address(address)
    return not (number.is_loopback or number.is_unspecified)


def qr_text(url: str) -> str:
    """Return a QR code for a terminal, two rows a line, with the quiet zone that readers need (ISO/IEC 18004)."""
    import segno

    out = io.StringIO()
    segno.make(url, error="m", micro=False).terminal(out=out, border=2, compact=True)
    return out.getvalue().rstrip("\n")
