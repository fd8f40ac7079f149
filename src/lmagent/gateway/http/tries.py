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
    """A limit: at most `burst` at once, and one more every `every` seconds."""

    burst: int
    every: float


# Tries of all unknown clients together: guessing half of a million PINs takes at least eleven days.
STRANGERS = Rate(10, 2.0)

ADDRESS = Rate(5, 10.0)  # the share of one address: four addresses that guess all the time leave some tries to others
DEVICES = Rate(5, 2.0)  # tries of all devices that have logged in before, in addition
DEVICE = Rate(3, 10.0)  # the share of one device


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


class Tries:
    """The tries of a server's PIN: at most 25 in ten seconds.

    Only clients with a used share are remembered, so their number is bounded by the common budgets, however many
    addresses an attacker has.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._strangers = TriesBudget(STRANGERS, clock)
        self._devices = TriesBudget(DEVICES, clock)
        self._used: dict[str, TriesBudget] = {}

    def __len__(self) -> int:
        return len(self._used)

    def take(self, address: str, device: str) -> float:
        """Take a try; return 0, or the seconds until there is one. `device` is empty unless its cookie is valid."""
        common, own = self._budgets(address, device)
        if wait := own.wait() or common.take():
            return wait
        own.take()
        self._used = {who: budget for who, budget in self._used.items() if not budget.is_whole}
        self._used[self._name(address, device)] = own
        return 0.0

    def give_back(self, address: str, device: str) -> None:
        for budget in self._budgets(address, device):
            budget.give_back()

    def _budgets(self, address: str, device: str) -> tuple[TriesBudget, TriesBudget]:
        """Return the common budget and the client's share of it."""
        own = self._used.get(self._name(address, device))
        common, share = (self._devices, DEVICE) if device else (self._strangers, ADDRESS)
        return common, own or TriesBudget(share, self._clock)

    def _name(self, address: str, device: str) -> str:
        return f"device {device}" if device else network_of(address)


def network_of(address: str) -> str:
    """Return the network of an address: itself, or its /64 (RFC 4291, 2.5.4); "" for text that is no address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((int(ip) >> 64 << 64, 64)))
