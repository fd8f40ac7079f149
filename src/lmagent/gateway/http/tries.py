"""Tries: how often a PIN may be tried, by whom.

Who makes them is told by the network that they come from, or by the cookie of a device that has logged in before. Each
has a small share of what all have together, so that who guesses uses up nothing but a share.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from msgspec import Struct

Clock = Callable[[], float]


class Rate(Struct, frozen=True):
    """How often something may be done: in a span of `t` seconds `burst + t / every` times.

    Attributes:
        burst: at most so many at once.
        every: seconds until there is one more.
    """

    burst: int
    every: float


STRANGERS = Rate(10, 2.0)
"""Tries that are judged of all who never logged in: of a million PINs half are tried in eleven days at the earliest."""

ADDRESS = Rate(5, 10.0)
"""What one address has of that: four of them that guess all the time leave something to the others."""

DEVICES = Rate(5, 2.0)
"""Tries that are judged besides, of devices that have logged in before."""

DEVICE = Rate(3, 10.0)
"""What one of these has of that."""


class Budget:
    """Tries that may be made: a few at once, then one now and again.

    Args:
        rate: how often.
        clock: seconds that never go back.
    """

    def __init__(self, rate: Rate, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._left = float(rate.burst)
        self._seen = clock()

    def wait(self) -> float:
        """Seconds until there will be one; 0 if there is."""
        now = self._clock()
        self._left = min(self._rate.burst, self._left + (now - self._seen) / self._rate.every)
        self._seen = now
        return 0.0 if self._left >= 1 else (1 - self._left) * self._rate.every

    def take(self) -> float:
        """Take one; returns 0, or the seconds until there will be one."""
        wait = self.wait()
        if not wait:
            self._left -= 1
        return wait

    def give_back(self) -> None:
        """One that was taken does not count."""
        self._left = min(self._rate.burst, self._left + 1)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it is used."""
        return not self.wait() and self._left >= self._rate.burst


class Shares:
    """One budget of all, and of each a share of it.

    Only who was judged is remembered, and only until the share is whole again. So there are never more of them than the
    budget of all admits in that time, however many addresses somebody sends from.

    Args:
        whole: of all together.
        share: of each.
        clock: seconds that never go back.
    """

    def __init__(self, whole: Rate, share: Rate, clock: Clock = time.monotonic) -> None:
        self._whole = Budget(whole, clock)
        self._share = share
        self._clock = clock
        self._used: dict[str, Budget] = {}

    def __len__(self) -> int:
        return len(self._used)

    def take(self, who: str) -> float:
        """Take a try of somebody's share; returns 0, or the seconds until there will be one."""
        own = self._used.get(who) or Budget(self._share, self._clock)
        if wait := own.wait() or self._whole.take():
            return wait
        own.take()
        for other in [other for other, budget in self._used.items() if budget.is_whole]:
            del self._used[other]
        self._used[who] = own
        return 0.0

    def give_back(self, who: str) -> None:
        """A try that was taken does not count."""
        self._whole.give_back()
        if (own := self._used.get(who)) is not None:
            own.give_back()


class Tries:
    """The tries of a server's PIN: in ten seconds 25 at most are judged.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._strangers = Shares(STRANGERS, ADDRESS, clock)
        self._devices = Shares(DEVICES, DEVICE, clock)

    def __len__(self) -> int:
        return len(self._strangers) + len(self._devices)

    def take(self, address: str, device: str) -> float:
        """Take one; returns 0, or the seconds until there will be one.

        Args:
            address: where it comes from.
            device: the device that it comes from, once that is proved; empty for none.
        """
        return self._devices.take(device) if device else self._strangers.take(network_of(address))

    def give_back(self, address: str, device: str) -> None:
        """One that was taken does not count."""
        if device:
            self._devices.give_back(device)
        else:
            self._strangers.give_back(network_of(address))


def network_of(address: str) -> str:
    """What an address counts as: itself, or of an IPv6 one the /64 that its owner picks from (RFC 4291, 2.5.4).

    What is no address, such as the name of a local socket, counts as one.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip) >> 64 << 64, 64)))
