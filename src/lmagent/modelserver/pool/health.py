"""Health: the pauses that follow a model's crashes and failed loads. Pure functions of the past."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from lmagent.modelserver.engine.cause import Cause

CRASHES = 3  # so many crashes within `WINDOW` put a model in quarantine
WINDOW = 600.0  # Seconds
PAUSE = 300.0  # seconds of a quarantine
RETRY = 2.0  # seconds in which a load that failed is not tried again; twice as long after each further failure
LONGEST_RETRY = 60.0


class Health(Struct, frozen=True):
    """The past crashes and failures of a model."""

    crashes: tuple[float, ...] = ()  # when it crashed, within the window
    total: int = 0  # how often it crashed
    failures: int = 0  # loads in a row that failed
    refuse_until: float = 0.0  # requests are refused before, with the cause
    quarantined_until: float = 0.0  # the same, for too many crashes
    cause: Cause | None = None  # of the last crash or failure


def crashed(health: Health, now: float, cause: Cause) -> Health:
    """Return the health after the worker ended by itself."""
    recent = (*(at for at in health.crashes if now - at <= WINDOW), now)
    after = replace(health, crashes=recent, total=health.total + 1, cause=cause)
    return after if len(recent) < CRASHES else replace(after, crashes=(), quarantined_until=now + PAUSE)


def failed(health: Health, now: float, cause: Cause) -> Health:
    """Return the health after a load failed."""
    wait = min(LONGEST_RETRY, RETRY * 2.0 ** min(health.failures, 10))
    return replace(health, failures=health.failures + 1, refuse_until=now + wait, cause=cause)


def loaded(health: Health) -> Health:
    """Return the health after a load; crashes are remembered."""
    return replace(health, failures=0, refuse_until=0.0)


def lifted(health: Health) -> Health:
    """Return the health after the user asked for another try at once."""
    return Health(total=health.total)


def quarantined(health: Health, now: float) -> bool:
    return now < health.quarantined_until
