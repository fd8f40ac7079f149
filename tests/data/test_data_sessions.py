"""The tools in a session: the catalogue, permission rules, undo, and the picture for surfaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from data_kit import why_no_bubblewrap

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit, Undo
from lmagent.core.messages import user
from lmagent.core.view import ToolBlock, View, reduce
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

pytestmark = pytest.mark.skipif(bool(why_no_bubblewrap()), reason=f"needs bubblewrap: {why_no_bubblewrap()}")


def asked(name: str, **arguments: Any) -> Any:
    return call("use_tool", name=name, arguments=arguments)


def session_of(
    workspace: Path, script: list[Any], flags: dict[str, Any] | None = None, *, undo: bool = False
) -> tuple[list[dict[str, Any]], list[ev.DurableEvent]]:
    """Return the requests and the events of one turn, with permission mode auto."""

    async def main() -> tuple[list[dict[str, Any]], list[ev.DurableEvent]]:
        with ScriptedServer([*script, say("Done.")]) as server:
            given = {"llm_url": server.base_url, "permission_mode": "auto", **(flags or {})}
            host = await open_host(HostOptions(workspace, given), say=lambda _: None)
            try:
                session = await host.new_session()
                await session.send(Submit(message=user("look")))
                await run_until_idle(session)
                if undo:
                    await session.send(Undo())
                    await run_until_idle(session)
                events = list(host.store.read(session.state.session))
            finally:
                await host.aclose()
            return [request.body for request in server.chats], events

    return anyio.run(main)


def results(events: list[ev.DurableEvent]) -> list[ev.ToolFinished]:
    return [event for event in events if isinstance(event, ev.ToolFinished)]


@pytest.fixture
def workspace(empty_workspace: Path) -> Path:
    (empty_workspace / "sales.csv").write_text("day,sales\n2024-01-01,1\n2024-01-02,5\n")
    (empty_workspace / "salaries.csv").write_text("name,pay\nAnn,opensesame\n")
    (empty_workspace / "link.csv").symlink_to("salaries.csv")
    return empty_workspace


def test_a_table_is_looked_into_and_drawn_and_the_picture_can_be_undone(workspace: Path) -> None:
    script = [asked("data_view", path="sales.csv", operation="shape"), asked("data_plot", path="sales.csv")]
    bodies, events = session_of(workspace, script, undo=True)
    assert "- data_view(path, operation?, n_rows?, query?): " in bodies[0]["messages"][1]["content"]
    assert "- data_plot(" not in bodies[0]["messages"][1]["content"]
    assert "data_view" not in str(bodies[0]["tools"])
    shape, plot = results(events)
    assert "2 rows, 2 columns: day, sales" in shape.content
    assert (plot.status, plot.data["picture"]) == ("ok", "sales.png")
    changed = next(event for event in events if isinstance(event, ev.FilesChanged))
    assert [change.path for change in changed.changes] == ["sales.png"]
    view = View()
    for event in events:
        view = reduce(view, event)
    assert [block.picture for block in view.blocks if isinstance(block, ToolBlock)] == ["", "sales.png"]
    assert not (workspace / "sales.png").exists()


@pytest.mark.parametrize("rule", ["effect:read(salaries.csv)", "data_view(salaries.csv)"])
@pytest.mark.parametrize("kind", ["permission_deny", "permission_ask"])
def test_a_file_that_rules_hide_is_neither_shown_nor_drawn_nor_queried(workspace: Path, rule: str, kind: str) -> None:
    peek = f"SELECT * FROM read_csv('{workspace}/salaries.csv')"
    script = [
        asked("data_view", path="salaries.csv"),
        asked("data_view", path="link.csv"),
        asked("data_view", path="sales.csv", operation="sql", query=peek),
        asked("data_plot", path="salaries.csv", x="name"),
        asked("data_plot", path="link.csv", x="name"),
    ]
    bodies, events = session_of(workspace, script, {kind: (rule,)})
    assert "opensesame" not in str(bodies)
    assert [result.status for result in results(events)] == ["denied", "denied", "error", "error", "error"]
    assert not list(workspace.glob("*.png"))


def test_the_setting_takes_both_tools_away(workspace: Path) -> None:
    bodies, events = session_of(workspace, [asked("data_plot", path="sales.csv")], {"enable_data_view": False})
    assert "data_view" not in bodies[0]["messages"][1]["content"]
    assert "There is no tool named 'data_plot'" in str(bodies[1]["messages"])
    assert results(events)[0].status == "error"
