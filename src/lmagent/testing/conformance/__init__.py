"""Conformance: one suite for each port. An adapter that passes can take the place of any other.

Subclass a suite in a test module, say how the adapter is made, and pytest runs it:

    class TestMyStore(EventStoreConformance):
        def make(self) -> EventStore:
            return MyStore()

This package needs pytest; the rest of `lmagent.testing` does not.
"""

from __future__ import annotations

from lmagent.testing.conformance.clock import ClockConformance
from lmagent.testing.conformance.dispatcher import DispatcherConformance
from lmagent.testing.conformance.provider import ProviderConformance
from lmagent.testing.conformance.sandbox import SandboxConformance
from lmagent.testing.conformance.store import EventStoreConformance

__all__ = [
    "ClockConformance",
    "DispatcherConformance",
    "EventStoreConformance",
    "ProviderConformance",
    "SandboxConformance",
]
