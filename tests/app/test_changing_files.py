"""What a session must have seen of a file before it changes it, and when a person is asked."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.engine.state import SessionState
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")

OLD = "def old():\n    return 1\n"


@pytest.fixture
def workspace(empty_workspace: Path) -> Path:
    (empty_workspace / "src").mkdir()
    (empty_workspace / "src/a.py").write_text(OLD)
    return empty_workspace


def played(workspace: Path, *calls, mode: str = "auto") -> list[ev.DurableEvent]:
    """The events of a session in which the model makes these calls, one a step."""
    events: list[ev.DurableEvent] = []

    async def play() -> None:
        replies = iter(calls)
        with ScriptedServer(lambda _: next(replies, say("Done."))) as server:
            flags = {"llm_url": server.base_url, "permission_mode": mode}
            host = await open_host(HostOptions(workspace, flags, attended=False), say=lambda _: None)
            try:
                session = await host.new_session()
                session.listen(lambda event: events.append(event) if isinstance(event, ev.DurableEvent) else None)
                await session.send(Submit(message=user("do it")))
                await run_until_idle(session)
            finally:
                await host.aclose()

    anyio.run(play)
    return events


def results(events) -> list[ev.ToolFinished]:
    return [event for event in events if isinstance(event, ev.ToolFinished)]


WRITE = call("write", path="src/a.py", content="new\n")
CONFIRM = call("write", path="src/a.py", confirm=True)


def test_a_write_over_a_file_that_was_never_shown_is_refused_once_and_then_done_without_the_text(workspace):
    refused, done = results(played(workspace, WRITE, CONFIRM))
    assert refused.status == "error"
    assert "Your text is kept" in refused.content
    assert done.content == "Replaced src/a.py (4 bytes, 1 line, +1 −2)."
    assert (workspace / "src/a.py").read_text() == "new\n"


def test_the_kept_text_is_known_from_the_log_alone(workspace):
    state = SessionState()
    for event in played(workspace, WRITE):
        state.apply(event)
    assert list(state.marks.kept) == ["src/a.py"]
    for event in played(workspace, WRITE, CONFIRM):
        state.apply(event)
    assert state.marks.kept == {}


@needs_bubblewrap
@pytest.mark.parametrize(
    "look",
    [
        call("shell", command="cat src/a.py"),
        call("shell", command="cd src && sed -n '1,5p' a.py"),
        call("shell", command="cat -n src/*.py; ls src/a.py"),
        call("shell", command="grep -rn old ."),
        call("grep", pattern="return"),
        call("python", code="print(open('src/a.py').read())"),
        call("python", code="open('src/a.py').read()"),
    ],
)
def test_a_file_that_any_tool_has_shown_is_replaced_at_once(workspace, look):
    _, done = results(played(workspace, look, WRITE))
    assert done.content.startswith("Replaced src/a.py")


@needs_bubblewrap
@pytest.mark.parametrize(
    "call_that_shows_nothing",
    [
        call("shell", command="ls -la src; wc -l src/a.py"),
        call("shell", command="cat src/a.py > /dev/null"),
        call("grep", pattern="nowhere"),
        call("glob", pattern="**/*.py"),
    ],
)
def test_a_file_that_was_only_named_counts_as_never_shown(workspace, call_that_shows_nothing):
    _, refused = results(played(workspace, call_that_shows_nothing, WRITE))
    assert refused.data["code"] == "unread"
    assert (workspace / "src/a.py").read_text() == OLD


@needs_bubblewrap
def test_a_file_that_changed_since_it_was_shown_is_not_edited_until_it_is_shown_again(workspace):
    change = call("shell", command="echo '# more' >> src/a.py")
    edit = call("edit", path="src/a.py", search="return 1", replace="return 2")
    show = call("shell", command="tail -n 2 src/a.py")
    _, _, stale, _, done = results(played(workspace, call("read", path="src/a.py"), change, edit, show, edit))
    assert stale.data["code"] == "stale"
    assert done.status == "ok"
    assert (workspace / "src/a.py").read_text() == "def old():\n    return 2\n# more\n"


def test_nobody_is_asked_about_a_call_that_would_be_refused_or_change_nothing(workspace):
    refused = [
        call("edit", path="src/a.py", search="return 7", replace="return 8"),
        call("edit", path="src/none.py", search="a", replace="b"),
        call("write", path="src/a.py", content=OLD),
        WRITE,
    ]
    events = played(workspace, *refused, mode="normal")
    assert [event.data["code"] for event in results(events)] == ["missing", "missing", "unchanged", "unread"]
    assert not [event for event in events if isinstance(event, ev.ApprovalRequested)]
    assert (workspace / "src/a.py").read_text() == OLD


def test_a_person_is_asked_about_a_confirmed_write_with_its_text(workspace):
    events = played(workspace, WRITE, CONFIRM, mode="normal")
    (asked,) = [event for event in events if isinstance(event, ev.ApprovalRequested)]
    assert "+new" in asked.preview
    assert asked.summary == "write src/a.py (the text that was kept)"
    assert results(events)[-1].status == "denied"
