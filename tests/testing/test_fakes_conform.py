"""Each fake passes the suite of its port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lmagent.app.clock import SystemClock
from lmagent.core.ports import Clock, EventStore, MemoryIndex, Provider, Sandbox
from lmagent.testing.conformance import (
    ClockConformance,
    EventStoreConformance,
    MemoryIndexConformance,
    ProviderConformance,
    SandboxConformance,
)
from lmagent.testing.conformance.sandbox import CHANNEL, KILLED, PRINT, SLOW, TOUCH
from lmagent.testing.fakes import (
    FakeClock,
    FakeMemoryIndex,
    FakeProvider,
    FakeSandbox,
    MemoryStore,
    ProgramRun,
)
from lmagent.testing.script import Behaviour


class TestFakeClock(ClockConformance):
    def make(self) -> Clock:
        return FakeClock(auto=True)


class TestMemoryStore(EventStoreConformance):
    def make(self) -> EventStore:
        return MemoryStore(FakeClock())


class TestFakeMemoryIndex(MemoryIndexConformance):
    def make(self) -> MemoryIndex:
        return FakeMemoryIndex()


class TestFakeProvider(ProviderConformance):
    @contextmanager
    def make(self, replies: Sequence[Behaviour]) -> Iterator[Provider]:
        yield FakeProvider(replies)


class TestFakeSandbox(SandboxConformance):
    def make(self, workspace: Path) -> Sandbox:
        program = {
            PRINT: ProgramRun("out\n", "err\n", exit_code=3),
            TOUCH: ProgramRun(writes={"sub/new.txt": b"data"}),
            SLOW: ProgramRun("begun\n", seconds=60),
            KILLED: ProgramRun(exit_code=143),
            CHANNEL: ProgramRun(channel=b"private\n"),
        }
        return FakeSandbox(program, SystemClock(), workspace)
