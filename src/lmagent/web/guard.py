"""Guard: the hosts and addresses that pages may come from.

A host on the internet may be fetched from, if the user allows it (the permission is the gate's). This machine, the
local network, metadata servers and other special addresses may not, unless the host and port are listed, like those of
commands (`sandbox_hosts`). A name is resolved once for each connection, every address is judged, and the connection
goes to the judged address: a name that resolves otherwise the next time gains nothing by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

import anyio

from lmagent.core.errors import ToolError
from lmagent.sandbox.hosts import Address, HostPattern, Target, is_private, is_reachable, reach_of
from lmagent.sandbox.proxy import ADVICE, Resolve, system_resolve

RESOLVING = 10.0
"""Seconds that a look-up may take."""


class WebGuard:
    """Judges targets and resolves names. `listed` are the patterns of hosts that may be private."""

    def __init__(self, listed: Sequence[HostPattern], resolve: Resolve = system_resolve) -> None:
        self._listed = listed
        self._resolve = resolve

    def admit(self, target: Target) -> None:
        """Raise ToolError for a target that is certainly private and not listed: no user need be asked about it."""
        if is_private(target) and reach_of(self._listed, target) is None:
            raise _refusal(target, f"{target} is not on the internet")

    def is_near(self, target: Target) -> bool:
        """Return whether a target is listed as one of this machine or network."""
        return reach_of(self._listed, target) in ("local", "any")

    async def addresses(self, target: Target) -> Sequence[Address]:
        """Return the addresses to connect to, in order. Raise ToolError if no address is allowed."""
        self.admit(target)
        reach = reach_of(self._listed, target) or "public"
        found = await self._addresses(target)
        allowed = [address for address in found if is_reachable(address, reach)]
        if found and not allowed:
            raise _refusal(target, f"{target.host} is {found[0]}, which is not on the internet")
        if not allowed:
            raise ToolError(f"There is no host named {target.host}. Nothing was sent.")
        return allowed

    async def _addresses(self, target: Target) -> Sequence[Address]:
        if address := target.address:
            return (address,)
        try:
            with anyio.fail_after(RESOLVING):
                return tuple(map(ip_address, await self._resolve(target.host, target.port)))
        except (OSError, ValueError):  # UnicodeError, for a label that is too long, is a ValueError
            return ()


def _refusal(target: Target, why: str) -> ToolError:
    advice = ADVICE.format(target if target.address or target.host == "localhost" else f"ip:{target}")
    return ToolError(f"{why}, and only listed hosts of this machine or network are fetched from. {advice}")
