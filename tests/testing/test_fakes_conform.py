"""Each fake passes the suite of its port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lmagent.core.ports import Clock, Dispatcher, EventStore, MemoryIndex, Provider, Sandbox
from lmagent.testing.conformance import (
    ClockConformance,
    DispatcherConformance,
    EventStoreConformance,
    MemoryIndexConformance,
    ProviderConformance,
    SandboxConformance,
)
from lmagent.testing.conformance.sandbox import KILLED, PRINT, SLOW, TOUCH
from lmagent.testing.fakes import (
    FakeClock,
    FakeDispatcher,
    FakeMemoryIndex,
    FakeProvider,
    FakeSandbox,
    MemoryStore,
    Ran,
)
from lmagent.testing.script import Behaviour


class TestFakeClock(ClockConformance):
    def make(self) -> Clock:
        return FakeClock(auto=True)


class TestMemoryStore(EventStoreConformance):
    def make(self) -> EventStore:
        return MemoryStore(FakeClock())


class TestFakeProvider(ProviderConformance):
    @contextmanager
    def make(self, replies: Sequence[Behaviour]) -> Iterator[Provider]:
        yield FakeProvider(replies)


class TestFakeSandbox(SandboxConformance):
    def make(self) -> Sandbox:
        program = {
            PRINT: Ran("out\nerr\n", exit_code=3),
            TOUCH: Ran(writes={"sub/new.txt": b"data"}),
            SLOW: Ran("begun\n", seconds=60),
            KILLED: Ran(exit_code=-15),
        }
        return FakeSandbox(program, FakeClock(auto=True))


class TestFakeDispatcher(DispatcherConformance):
    def make(self) -> tuple[Dispatcher, Clock]:
        clock = FakeClock(auto=True)
        return FakeDispatcher(clock), clock


class TestFakeMemoryIndex(MemoryIndexConformance):
    def make(self) -> MemoryIndex:
        return FakeMemoryIndex()
