"""The pictures of `/context` and `/usage`, from a real session and its index."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from lmagent.app.commands.charts import day_bars, window_map
from lmagent.app.options import HostOptions
from lmagent.app.slash import SlashContext, dispatch
from lmagent.app.wiring import open_host
from lmagent.core.agent import Window
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.core.view import View
from lmagent.engine.lane import run_until_idle
from lmagent.store.spent import UsageSums
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

NARROW = 40


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ws").mkdir()

    async def ask() -> dict[str, str]:
        with ScriptedServer([call("ls"), say("Done.")]) as server:
            host = await open_host(HostOptions(tmp_path / "ws", {"llm_url": server.base_url}), say=lambda _: None)
            try:
                found = {"before": (await dispatch("/usage", SlashContext(host, None, View()))).text}
                session = await host.new_session()
                await session.send(Submit(message=user("look around")))
                await run_until_idle(session)
                for line in ("/context", "/usage", "/cost"):
                    found[line] = (await dispatch(line, SlashContext(host, session, View()))).text
                return found
            finally:
                await host.aclose()

    return anyio.run(ask)


def test_each_part_of_the_window_has_a_row_with_a_bar(shown: dict[str, str]) -> None:
    rows = shown["/context"].splitlines()
    assert [row.split()[0] for row in rows[:7]] == ["System", "Tools", "Notes", "User", "Agent", "Results", "Room"]
    assert all("#" in row for row in rows[:7])
    assert max(map(len, rows)) <= NARROW


def test_usage_draws_today_beside_the_session_and_cost_is_another_word_for_it(shown: dict[str, str]) -> None:
    assert shown["before"] == "No tokens were used here in the last 14 days."
    session, _, bars = shown["/usage"].partition("\n\n")
    assert session.startswith("This session: 2 model calls")
    days = bars.splitlines()[1:]
    assert len(days) == 14
    assert days[-1].count("#") == 18
    assert shown["/cost"] == shown["/usage"]
    assert max(map(len, bars.splitlines())) <= NARROW


def test_a_day_with_little_use_has_a_bar_and_a_day_without_has_none() -> None:
    rows = day_bars(
        [UsageSums("2026-02-28", prompt_tokens=1), UsageSums("2026-03-01", prompt_tokens=9_000_000)], "2026-03-01"
    )
    idle, little, much = rows.splitlines()[-3:]
    assert (idle.count("#"), little.count("#"), much.count("#")) == (0, 1, 18)
    assert much.endswith("9,000,000")


def test_a_conversation_larger_than_its_window_still_fits_the_bar() -> None:
    rows = window_map({"System": 100, "User": 5000}, Window(tokens=1000), 5100, 0).splitlines()
    assert rows[1].count("#") == 18
