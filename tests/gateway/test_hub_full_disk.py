"""A disk that is full for a while: what is refused is said, and when there is room again all goes on by itself."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import anyio
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "undo"))

from hub_kit import asked, hub_on, recorded, until, watcher
from undo_kit import small_disk

from lmagent.app import upkeep
from lmagent.core import events as ev
from lmagent.core.commands import SetModel
from lmagent.core.errors import StoreError
from lmagent.core.messages import user
from lmagent.gateway.compat.socket import begin_anew
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say, slow

pytestmark = pytest.mark.anyio

LONG = " ".join(f"a long message {number}" for number in range(1000))
"""More than the last block of a file may have left."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@contextlib.contextmanager
def full(disk: Path):
    """The disk has no room as long as this is open."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    try:
        yield
    finally:
        ballast.unlink()


def ends(hub, session: str) -> list[str]:
    return [event.outcome for event in recorded(hub, session) if isinstance(event, ev.TurnFinished)]


async def test_what_was_refused_for_a_full_disk_is_taken_as_soon_as_there_is_room(tmp_path):
    with small_disk(tmp_path / "w", "4m") as disk, ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(disk, model.base_url) as hub:
            session = (await hub.runner.begin()).id
            await asked(hub, session, "one")
            async with watcher(hub, session):  # whoever asks again and again keeps it open, and so does who watches
                with full(disk):
                    for _ in range(3):
                        with pytest.raises(StoreError, match="the disk is full"):
                            await hub.runner.submit(session, user(LONG), id="two")
                await hub.runner.submit(session, user(LONG), id="two")
                await until(lambda: ends(hub, session) == ["done", "done"])
            inputs = [str(event.origin) for event in recorded(hub, session) if isinstance(event, ev.InputReceived)]
            assert inputs.count("web:two") == 1


async def test_a_session_that_could_not_be_opened_whole_is_not_kept_from_anybody(tmp_path):
    with small_disk(tmp_path / "w", "4m") as disk, ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(disk, model.base_url) as hub:
            session = (await hub.runner.begin()).id
            await asked(hub, session, "one")
        async with hub_on(disk, model.base_url) as hub:
            hub.host.initial_commands = (SetModel(model=LONG),)  # which is recorded as the session is opened
            with full(disk), pytest.raises(StoreError, match="the disk is full"):
                await hub.runner.open(session)
            assert session not in hub.host.sessions
            hub.host.store.open(session).close()  # as another process would
            await asked(hub, session, "two")


async def test_who_watches_a_session_is_sent_to_the_new_conversation_though_it_could_not_be_opened(tmp_path):
    with ScriptedServer(lambda _: say("Noted.")) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            session = (await hub.runner.begin("main")).id
            await asked(hub, session, "one")

            async def refuse(_: object) -> None:
                hub.host.registry.openers.remove(refuse)
                raise StoreError("the disk is full")

            hub.host.registry.openers.append(refuse)
            async with watcher(hub, session) as seen:
                with pytest.raises(StoreError):
                    await begin_anew(hub, session)
                await seen.until(lambda seen: seen.is_over)  # its place would be told nothing live any more
            async with watcher(hub, session) as seen:
                await asked(hub, session, "two")
                await seen.until_type("text.delta")


async def test_a_turn_that_a_full_disk_has_cut_off_is_gone_on_with_when_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(upkeep, "LOOK", 0.2)
    monkeypatch.setattr(upkeep, "REFUSED", 1.0)
    with small_disk(tmp_path / "w", "4m") as disk, ScriptedServer(lambda _: slow(say(LONG), first=0.5)) as model:
        async with hub_on(disk, model.base_url) as hub:
            session = (await hub.runner.begin()).id
            await hub.runner.submit(session, user("one"))
            await until(lambda: any(isinstance(event, ev.StepStarted) for event in recorded(hub, session)))
            with full(disk):
                await anyio.sleep(3 * upkeep.REFUSED)  # it is gone on with, in vain
                assert "done" not in ends(hub, session)
            await until(lambda: ends(hub, session) == ["done"])
