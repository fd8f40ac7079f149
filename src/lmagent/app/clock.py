"""The system clock."""

from __future__ import annotations

import time

import anyio


class SystemClock:
    """Real time."""

    def now(self) -> float:
        """Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(max(0.0, seconds))
