"""Tries: limits on how often the PIN may be tried.

Clients are distinguished by their network, or by the cookie of a device that has logged in before. Each has a small
share of a common budget, so that a guessing client uses up only its share.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from msgspec import Struct

Clock = Callable[[], float]


class Rate(Struct, frozen=True):
    """A limit: `burst + t / every` times in `t` seconds.

    Attributes:
        burst: most at once.
        every: seconds until there is one more.
    """

    burst: int
    every: float


STRANGERS = Rate(10, 2.0)
"""Tries of all unknown clients together: guessing half of a million PINs takes at least eleven days."""

ADDRESS = Rate(5, 10.0)
"""The share of one address: four addresses that guess all the time leave some tries to others."""

DEVICES = Rate(5, 2.0)
"""Tries of all devices that have logged in before, in addition."""

DEVICE = Rate(3, 10.0)
"""The share of one device."""


class TriesBudget:
    def __init__(self, rate: Rate, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._left = float(rate.burst)
        self._seen = clock()

    def wait(self) -> float:
        """Return the seconds until there is a try; 0 if there is one."""
        now = self._clock()
        self._left = min(self._rate.burst, self._left + (now - self._seen) / self._rate.every)
        self._seen = now
        return 0.0 if self._left >= 1 else (1 - self._left) * self._rate.every

    def take(self) -> float:
        """Take a try; return 0, or the seconds until there is one."""
        wait = self.wait()
        if not wait:
            self._left -= 1
        return wait

    def give_back(self) -> None:
        self._left = min(self._rate.burst, self._left + 1)

    @property
    def is_whole(self) -> bool:
        """Whether none of it is used."""
        return not self.wait() and self._left >= self._rate.burst


class Shares:
    """A common budget, and a share of it for each client.

    Only clients with a used share are remembered, so their number is bounded by the common budget, however many
    addresses an attacker has.
    """

    def __init__(self, whole: Rate, share: Rate, clock: Clock = time.monotonic) -> None:
        self._whole = TriesBudget(whole, clock)
        self._share = share
        self._clock = clock
        self._used: dict[str, TriesBudget] = {}

    def __len__(self) -> int:
        return len(self._used)

    def take(self, who: str) -> float:
        """Take a try of a client's share; return 0, or the seconds until there is one."""
        own = self._used.get(who) or TriesBudget(self._share, self._clock)
        if wait := own.wait() or self._whole.take():
            return wait
        own.take()
        for other in [other for other, budget in self._used.items() if budget.is_whole]:
            del self._used[other]
        self._used[who] = own
        return 0.0

    def give_back(self, who: str) -> None:
        self._whole.give_back()
        if (own := self._used.get(who)) is not None:
            own.give_back()


class Tries:
    """The tries of a server's PIN: at most 25 in ten seconds."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._strangers = Shares(STRANGERS, ADDRESS, clock)
        self._devices = Shares(DEVICES, DEVICE, clock)

    def __len__(self) -> int:
        return len(self._strangers) + len(self._devices)

    def take(self, address: str, device: str) -> float:
        """Take a try; return 0, or the seconds until there is one. `device` is empty unless its cookie is valid."""
        return self._devices.take(device) if device else self._strangers.take(network_of(address))

    def give_back(self, address: str, device: str) -> None:
        if device:
            self._devices.give_back(device)
        else:
            self._strangers.give_back(network_of(address))


def network_of(address: str) -> str:
    """Return the network that an address counts as: itself, or the /64 of an IPv6 address (RFC 4291, 2.5.4).

    Text that is not an address, such as the name of a local socket, counts as "".
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip) >> 64 << 64, 64)))
