"""Fakes: one in-memory implementation of each port. They keep their port's contract; `conformance` tests them on it."""

from __future__ import annotations

from lmagent.testing.fakes.clock import FakeClock
from lmagent.testing.fakes.memory import FakeMemoryIndex
from lmagent.testing.fakes.provider import FakeProvider, model_events
from lmagent.testing.fakes.sandbox import FakeSandbox, ProgramRun
from lmagent.testing.fakes.store import MemoryStore

__all__ = [
    "FakeClock",
    "FakeMemoryIndex",
    "FakeProvider",
    "FakeSandbox",
    "MemoryStore",
    "ProgramRun",
    "model_events",
]
