"""However messages are sent, steered, queued, taken back and stopped: they are shown in the order of the model's.

`LMAGENT_ORDER_RUNS=1000` plays as many random conversations as the bar names; a check plays 30.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable
from functools import reduce as fold

import anyio
import pytest
from hub_kit import hub_on, recorded, until
from msgspec.structs import replace

from lmagent.app.open_session import OpenSession
from lmagent.core.commands import Interrupt, Withdraw
from lmagent.core.messages import user
from lmagent.core.view import TextBlock, UserBlock, View, reduce
from lmagent.gateway.gateway import Gateway
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say, slow

pytestmark = pytest.mark.anyio

ACTIONS = ("queue", "steer", "queue", "steer", "withdraw", "interrupt", "stop", "look", "wait", "wait")
RUNS = int(os.environ.get("LMAGENT_ORDER_RUNS", "30"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Answers:
    """Replies that all differ; some call a tool first, some take their time."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.count = 0

    def __call__(self, received: object) -> object:
        self.count += 1
        if self.chance.random() < 0.4:
            return call("read", path=f"a{self.count}.txt")
        return slow(say(f"answer {self.count}"), first=self.chance.choice([0.0, 0.02, 0.05]))


async def act(hub: Gateway, desk: OpenSession, action: str, number: int, chance: random.Random) -> None:
    waiting = list(desk.session.state.inputs)
    if action in ("queue", "steer"):
        await hub.runner.submit(desk.id, user(f"question {number}"), id=f"q{number}", steer=action == "steer")
    elif action == "withdraw" and waiting:
        await hub.runner.send(desk.id, Withdraw(input=chance.choice(waiting)))
    elif action == "interrupt":  # a client that has gone: what others sent begins next
        await hub.runner.send(desk.id, Interrupt())
    elif action == "stop":
        await hub.runner.stop(desk.id)
        assert not desk.session.state.inputs
    else:
        await anyio.sleep(chance.choice([0.0, 0.01, 0.04]))


def said(texts: Iterable[str]) -> list[str]:
    """Questions and answers in these texts."""
    return re.findall(r"(?:question|answer) \d+", "\n".join(texts))


def shown(view: View) -> list[str]:
    return said(block.text for block in view.blocks if isinstance(block, UserBlock | TextBlock))


@pytest.mark.parametrize("seed", range(RUNS))
async def test_what_is_shown_has_the_order_of_the_conversation(tmp_path, seed):
    chance = random.Random(seed)
    with ScriptedServer(Answers(chance)) as model:
        async with hub_on(tmp_path / "w", model.base_url) as hub:
            desk = await hub.runner.begin()
            tabs: list[tuple[int, View]] = [(0, View())]
            for number in range(chance.randint(4, 12)):
                await act(hub, desk, chance.choice(ACTIONS), number, chance)
                if chance.random() < 0.3:  # a page that is loaded now, and continues from here
                    seq, view, blocks = await hub.views.look(desk.id)
                    tabs.append((seq, replace(view, blocks=blocks)))
            await desk.until_idle()
            await until(lambda: not desk.session.state.inputs)
            events = recorded(hub, desk.id)
            whole = fold(reduce, events, View())
            followed = [fold(reduce, (event for event in events if event.seq > seq), view) for seq, view in tabs]
            sent = said(message.text for message in desk.session.state.messages)
            assert shown(whole) == sent
            assert followed == [whole] * len(tabs)
            assert whole.waiting == ()
