"""A job whose session is deleted or cleared under it: it is settled before that, so that no crash begins it again."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hub_kit import hub_on, recorded, until

from lmagent.core import events as ev
from lmagent.gateway.compat.socket import begin_anew
from lmagent.gateway.gateway import Gateway
from lmagent.schedule.inbox import Inbox
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say, slow

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def begun(hub: Gateway, workspace: Path) -> str:
    """The session of a task at which the model is."""
    Inbox(workspace / ".lmagent").submit("a task", time.time())
    await until(lambda: bool(hub.host.store.sessions()))
    (session,) = hub.host.store.sessions()
    await until(lambda: any(isinstance(event, ev.StepStarted) for event in recorded(hub, session)))
    return session


@pytest.mark.parametrize("take_away", [lambda hub, session: hub.runner.delete(session), begin_anew])
async def test_a_task_is_settled_before_its_session_is_deleted_or_cleared(tmp_path, take_away):
    with ScriptedServer(lambda _: slow(say("never said"), first=30)) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            session = await begun(hub, tmp_path / "w")
            await take_away(hub, session)
            assert os.listdir(tmp_path / "w" / ".lmagent" / "inbox" / "claimed") == []
