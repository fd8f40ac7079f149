from __future__ import annotations

import subprocess
import sys

import anyio
import pytest

from lmagent.core.errors import ServerFailure
from lmagent.core.messages import user
from lmagent.core.model import ModelReply, ModelRequest
from lmagent.testing import call, say
from lmagent.testing.fakes import FakeClock, FakeProvider


def test_sleepers_wake_in_the_order_of_their_times_and_see_their_own_time() -> None:
    clock = FakeClock(start=1e9)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *naps: float) -> None:
        for nap in naps:
            await clock.sleep(nap)
            woken.append((name, clock.monotonic()))

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleeper, "late", 3)
            tasks.start_soon(sleeper, "often", 1, 1, 1.5)
            tasks.start_soon(sleeper, "beyond", 20)
            await clock.advance(10)
            assert clock.now() == 1e9 + 10
            assert clock.sleepers == 1
            tasks.cancel_scope.cancel()

    anyio.run(main)
    assert woken == [("often", 1), ("often", 2), ("late", 3), ("often", 3.5)]
    assert clock.sleepers == 0


def test_a_fake_provider_records_the_messages_as_they_were() -> None:
    provider = FakeProvider([call("read", path="a"), say("done")])
    messages = [user("hello")]

    async def main() -> list[ModelReply]:
        replies: list[ModelReply] = []
        for _ in range(2):
            last = [event async for event in provider.stream(ModelRequest("m", "s", (), messages))][-1]
            assert isinstance(last, ModelReply)
            replies.append(last)
            messages.append(last.message)
        with pytest.raises(ServerFailure, match="script exhausted"):
            [event async for event in provider.stream(ModelRequest("m", "s", (), messages))]
        return replies

    first, second = anyio.run(main)
    assert first.message.tool_calls[0].arguments == '{"path":"a"}'
    assert second.message.text == "done"
    assert [len(request.messages) for request in provider.requests] == [1, 2, 3]


def test_the_package_needs_no_pytest() -> None:
    code = "import sys; import lmagent.testing, lmagent.testing.fakes; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
