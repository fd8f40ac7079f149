"""Fakes of the ports to the world outside: time, a model, processes, MCP servers. `conformance` tests them.

The store and the dispatcher need no fake: the real ones work in an empty folder.
"""

from __future__ import annotations

from lmagent.testing.fakes.clock import FakeClock
from lmagent.testing.fakes.provider import FakeProvider
from lmagent.testing.fakes.sandbox import FakeSandbox, ProgramRun
from lmagent.testing.fakes.servers import FakeServer, FakeServers

__all__ = ["FakeClock", "FakeProvider", "FakeSandbox", "FakeServer", "FakeServers", "ProgramRun"]
