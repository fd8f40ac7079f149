"""Exports: everything that was said is in them, and nothing in them is alive."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser
from pathlib import Path

import anyio
import pytest
from store_kit import SESSION, a_session, a_turn, created, store_in

from lmagent.app.records import export_session
from lmagent.core import events as ev
from lmagent.core.events import DurableEvent, decode
from lmagent.core.messages import Image, Message, Text, Thinking, ToolCall, user
from lmagent.store.export import to_html, to_jsonl, to_markdown
from lmagent.store.jsonl import JsonlStore
from lmagent.testing.fakes import FakeClock

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31mred\x1b[0m\x1b]0;title\x07"


class _Page(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.sources: list[str] = []
        self.handlers: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href"):
                self.sources.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _page(events: list[DurableEvent]) -> _Page:
    page = _Page()
    page.feed(to_html(events))
    page.close()
    assert page.open == []
    return page


def _evil_session() -> list[DurableEvent]:
    call = ToolCall("c", EVIL, EVIL)
    message = Message("user", (Text(EVIL), Image("image/svg+xml", "PHN2Zz4="), Image("image/png", 'x" onload="y')))
    return [
        created(),
        ev.SessionRenamed(title=EVIL),
        ev.InputReceived(id="i", message=message, delivery="submit"),
        ev.MessageAdded(message=message, origin="input", input="i"),
        ev.MessageAdded(message=Message("assistant", (Thinking(EVIL), Text(EVIL), call)), origin="model"),
        ev.ApprovalResolved(approval="a", call_id="c", approved=False, by=EVIL, feedback=EVIL),
        ev.ToolStarted(call_id="c", tool="read", effect="read", summary=EVIL),
        ev.ToolFinished(call_id="c", tool=EVIL, status="error", content=EVIL, data={"diff": EVIL}),
        ev.Notice(level="error", code="x", text=EVIL, fix=EVIL),
        ev.ModelChanged(model=EVIL),
        ev.CompactionDone(messages=(), trigger="window", summary=EVIL, before_tokens=9, after_tokens=1, through_seq=3),
        ev.TurnFinished(outcome="error", reason=EVIL, fix=EVIL),
    ]


def test_markdown_tells_the_whole_conversation(tmp_path: Path) -> None:
    text = to_markdown(a_session(store_in(tmp_path)))
    assert text.startswith("# what is in a.txt?\n")
    for part in (
        SESSION,
        "## User",
        "Let me look.",
        '**read** `{"path": "a.txt"}`',
        "```\nhéllo\n```",
        "It says héllo.",
    ):
        assert part in text
    assert "2026-01-02 03:04 UTC" in text
    assert "200 prompt and 20 reply tokens" in text


def test_html_tells_the_whole_conversation_without_scripts_or_outside_resources(tmp_path: Path) -> None:
    page = _page(a_session(store_in(tmp_path)))
    for part in (
        "what is in a.txt?",
        "Let me look.",
        "read",
        '{"path": "a.txt"}',
        "héllo",
        "It says héllo.",
        "Be exact.",
    ):
        assert part in page.text
    assert "script" not in page.tags
    assert "link" not in page.tags
    assert page.sources == []
    assert page.tags.count("details") == 2  # the system text and one call


def test_nothing_in_an_html_export_is_alive() -> None:
    page = _page(_evil_session())
    assert "script" not in page.tags
    assert page.tags.count("img") == 0
    assert page.sources == []
    assert page.handlers == []
    assert page.text.count("<script>alert(1)</script>") >= 8
    assert "\x1b" not in page.text


def test_an_image_is_embedded() -> None:
    message = Message("user", (Text("see"), Image("image/png", "iVBORw0KGgo=")))
    page = _page([created(), ev.MessageAdded(message=message, origin="input")])
    assert page.sources == ["data:image/png;base64,iVBORw0KGgo="]


def test_markdown_holds_no_terminal_escapes() -> None:
    text = to_markdown(_evil_session())
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "red" in text


def test_a_result_with_fences_stays_inside_its_own() -> None:
    call = ToolCall("c", "read", "`x`")
    text = to_markdown(
        [
            created(),
            ev.MessageAdded(message=Message("assistant", (call,)), origin="model"),
            ev.ToolFinished(call_id="c", tool="read", status="ok", content="````\n# no heading\n````"),
        ]
    )
    assert "`````\n````\n# no heading\n````\n`````" in text
    assert "**read** `` `x` ``" in text


def test_jsonl_is_the_log_itself(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    events = a_session(store)
    text = to_jsonl(store.read(SESSION))
    assert text.encode() == (store.root / SESSION / "events.jsonl").read_bytes()
    assert [decode(line.encode()) for line in text.splitlines()] == events


def test_an_input_that_was_not_delivered_and_a_call_without_result_are_shown() -> None:
    call = ToolCall("c", "read", "{}")
    events: list[DurableEvent] = [
        created(),
        ev.MessageAdded(message=Message("assistant", (call,)), origin="model"),
        ev.InputReceived(id="i", message=user("still waiting"), delivery="queue"),
    ]
    text = to_markdown(events)
    assert "**read** `{}` — pending" in text
    assert "User (not delivered yet)\n\nstill waiting" in text


@pytest.mark.parametrize("events", [[], [created()], a_turn()])
def test_a_session_without_beginning_or_end_can_be_exported(events: list[DurableEvent]) -> None:
    assert to_markdown(events)
    assert _page(events).tags


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAX+XDSwAAAABJRU5ErkJggg=="
)


def _plotted(sha256: str, path: str = "plot.png") -> list[DurableEvent]:
    message = Message("assistant", (ToolCall("c", "data_plot", '{"path": "sales.csv"}'),))
    data = {"path": path, "picture": path, "sha256": sha256}
    return [
        created(),
        ev.MessageAdded(message=message, origin="model"),
        ev.ToolFinished(call_id="c", tool="data_plot", status="ok", content="drawn", size=5, data=data, duration=0.1),
    ]


def test_a_picture_that_a_tool_made_is_in_the_page_while_it_is_as_it_was(tmp_path: Path):
    workspace = tmp_path / "work"
    store = JsonlStore(workspace / ".lmagent" / "sessions", FakeClock())
    (workspace / "plot.png").parent.mkdir(parents=True)
    (workspace / "plot.png").write_bytes(PIXEL)
    log = store.create(SESSION)
    for event in _plotted(hashlib.sha256(PIXEL).hexdigest()):
        anyio.run(log.append, event)
    log.close()
    shown = export_session(workspace, store, SESSION, "html")
    assert f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}" in shown
    (workspace / "plot.png").write_bytes(PIXEL + b"changed")
    assert "plot.png was changed or removed since" in export_session(workspace, store, SESSION, "html")


@pytest.mark.parametrize("path", ["../outside.png", "/etc/passwd", EVIL])
def test_a_picture_elsewhere_is_no_part_of_the_page(tmp_path: Path, path: str):
    workspace = tmp_path / "work"
    (tmp_path / "outside.png").write_bytes(PIXEL)
    store = JsonlStore(workspace / ".lmagent" / "sessions", FakeClock())
    log = store.create(SESSION)
    for event in _plotted(hashlib.sha256(PIXEL).hexdigest(), path):
        anyio.run(log.append, event)
    log.close()
    shown = export_session(workspace, store, SESSION, "html")
    assert "<img" not in shown
    assert "<script" not in shown


def test_a_call_by_use_tool_is_headed_by_what_it_does():
    used = ToolCall("c", "use_tool", '{"name": "web_fetch", "arguments": {"url": "https://a.example/<b>"}}')
    events: list[DurableEvent] = [
        created(),
        ev.MessageAdded(message=Message("assistant", (used,)), origin="model"),
        ev.ToolStarted(call_id="c", tool="web_fetch", effect="net", summary="web_fetch https://a.example/<b>"),
        ev.ToolFinished(call_id="c", tool="web_fetch", status="ok", content="text"),
    ]
    assert "<summary>web_fetch https://a.example/&lt;b&gt;</summary>" in to_html(events)
