"""Importing old sessions: nothing is lost silently, and the result is a valid conversation."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import NOW, created, store_in, write_all
from testkit.amount import examples

from lmagent.core import events as ev
from lmagent.core.errors import StoreError
from lmagent.core.messages import Image, Thinking
from lmagent.engine.state import SessionState
from lmagent.store.compat import NO_BEGINNING, RESULT_CAP, ImportedSession, read_session

OURS = "20270101_000000_000000"
PIXEL = "iVBORw0KGgo="


def _call(id: str, name: str = "read", arguments: Any = '{"path": "a"}') -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _read(path: Path) -> ImportedSession:
    return read_session(path, created(OURS), NOW)


def _lmagent(folder: Path, messages: list[Any], name: str = "20250301_101500_abc123", **metadata: Any) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"metadata": {"id": name, **metadata}, "messages": messages}, indent=2))
    return path


def _agent_computer(folder: Path, entries: list[Any], name: str = "my-session") -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text("".join((entry if isinstance(entry, str) else json.dumps(entry)) + "\n" for entry in entries))
    return path


def _line(
    role: str, content: Any, at: float = 1.7e9, call: str | None = None, tool: str | None = None
) -> dict[str, Any]:
    return {"role": role, "content": content, "timestamp": at, "tool_call_id": call, "tool_name": tool}


def _fold(imported: ImportedSession) -> SessionState:
    state = SessionState()
    for event in imported.events:
        state.apply(event)
    return state


def _assert_valid(state: SessionState) -> None:
    """Roles alternate, and every call has its result, in order, right behind it."""
    open_calls: list[str] = []
    before = ""
    for message in state.messages:
        if message.role == "tool":
            (result,) = message.parts
            assert result.call_id == open_calls.pop(0)  # type: ignore[union-attr]
        else:
            assert not open_calls
            assert message.role == ("assistant" if before in ("user", "tool") else "user")
            open_calls = [call.id for call in message.tool_calls]
        before = message.role
    assert not open_calls
    assert not state.open_calls
    assert not state.turn_open
    assert not state.inputs


def test_a_session_of_lmagent_is_taken_over(tmp_path: Path) -> None:
    path = _lmagent(
        tmp_path,
        [
            {"role": "system", "content": "You are LMAgent. CURRENT DATE/TIME: …"},
            {"role": "system", "content": "PROJECT CONFIG: …"},
            {"role": "user", "content": "Read a and b"},
            {"role": "assistant", "content": None, "tool_calls": [_call("call_0"), _call("call_1", "ls", {"p": 1})]},
            {"role": "tool", "tool_call_id": "call_0", "name": "read", "content": '{"success": true, "text": "A"}'},
            {"role": "tool", "tool_call_id": "call_1", "name": "ls", "content": '{"success": false, "error": "no"}'},
            {"role": "system", "content": "ACTIVE PLAN: …"},
            {"role": "assistant", "content": "Done.", "reasoning_content": "thought"},
        ],
        created="2025-03-01T10:15:00",
        updated="2025-03-01T10:16:00",
    )
    imported = _read(path)
    assert imported.session == "20250301_101500_abc123"
    first = imported.events[0]
    assert isinstance(first, ev.SessionCreated)
    assert (first.session, first.system, first.imported_from) == (imported.session, "Be exact.", str(path))
    assert first.ts == datetime(2025, 3, 1, 10, 15).timestamp()
    assert imported.taken == ("1 user message", "2 replies", "2 tool results")
    assert imported.left == ("3 system or injected messages",)
    state = _fold(imported)
    _assert_valid(state)
    assert [message.role for message in state.messages] == ["user", "assistant", "tool", "tool", "assistant"]
    results = [event for event in imported.events if isinstance(event, ev.ToolFinished)]
    assert [(item.tool, item.status) for item in results] == [("read", "ok"), ("ls", "error")]
    assert state.messages[1].tool_calls[1].arguments == '{"p": 1}'
    assert isinstance(state.messages[-1].parts[0], Thinking)
    assert state.last_outcome == "done"


def test_a_session_of_agent_computer_is_taken_over(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": "", "tool_calls": [_call("c1", "web_search")]}
    path = _agent_computer(
        tmp_path,
        [
            _line("user", "Search", 1.7e9),
            _line("assistant", message, 1.7e9 + 5),
            _line("meta", {"usage": {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}}),
            _line("tool", "found", 1.7e9 + 6, "c1", "web_search"),
            _line("assistant", "Here.", 1.7e9 + 9),
            _line("meta", {"usage": {"prompt_tokens": 70, "completion_tokens": 3}}),
            _line("user", "Thanks", 1.7e9 + 100),
        ],
    )
    (tmp_path / "my-session.tasks.json").write_text("[]")
    imported = _read(path)
    assert imported.session == "my-session"
    assert imported.taken == ("2 user messages", "2 replies", "1 tool result")
    assert imported.left == ("2 token counts", "the task list my-session.tasks.json")
    state = _fold(imported)
    _assert_valid(state)
    assert (state.usage.prompt_tokens, state.usage.completion_tokens, state.turn) == (0, 0, 2)
    assert state.prompt_tokens == 0  # their count says nothing about our prompt
    assert state.last_outcome == "interrupted"
    assert imported.events[-1].ts == 1.7e9 + 100
    times = [event.ts for event in imported.events]
    assert times[0] == 1.7e9
    assert times == sorted(times)


def test_an_imported_session_can_be_written_and_read_back(tmp_path: Path) -> None:
    path = _agent_computer(tmp_path, [_line("user", "Hi \ud83d"), _line("assistant", "Hello")])
    imported = _read(path)
    store = store_in(tmp_path)
    log = store.create(imported.session)
    stored = write_all(log, list(imported.events))
    log.close()
    assert list(store.read("my-session")) == stored
    assert [event.ts for event in stored] == [event.ts for event in imported.events]
    assert [event.id for event in stored] == [event.id for event in imported.events]


def test_a_damaged_line_is_skipped_and_reported(tmp_path: Path) -> None:
    path = _agent_computer(
        tmp_path, [_line("user", "one"), '{"role": "assist', "", "[1, 2]", _line("assistant", "two")]
    )
    imported = _read(path)
    assert imported.left == ("line 2: damaged, not JSON (16 characters)", "line 4: not a message")
    assert [message.text for message in _fold(imported).messages] == ["one", "two"]


def test_calls_without_result_are_reported_as_interrupted_and_results_without_call_left(tmp_path: Path) -> None:
    path = _lmagent(
        tmp_path,
        [
            {"role": "user", "content": "go"},
            {"role": "tool", "tool_call_id": "ghost", "content": "boo"},
            {"role": "assistant", "content": "", "tool_calls": [_call("a"), _call("b")]},
            {"role": "tool", "tool_call_id": "b", "content": "B"},
            {"role": "tool", "tool_call_id": "b", "content": "B again"},
            {"role": "user", "content": "and?"},
            {"role": "assistant", "content": "", "tool_calls": [_call("z")]},
        ],
    )
    imported = _read(path)
    state = _fold(imported)
    _assert_valid(state)
    results = {item.call_id: item.status for item in imported.events if isinstance(item, ev.ToolFinished)}
    assert results == {"b": "ok", "a": "interrupted", "z": "interrupted"}
    assert any(text.startswith("2 tool result(s) that belong to no call") for text in imported.left)
    assert any(text.startswith("2 call(s) without a result") for text in imported.left)


def test_ids_that_repeat_or_are_missing_are_made_unique(tmp_path: Path) -> None:
    messages: list[Any] = [{"role": "user", "content": "go"}]
    for text in ("first", "second"):
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [_call("call_0"), _call("call_0"), _call("")]},
            {"role": "tool", "tool_call_id": "call_0", "content": f"{text} 1"},
            {"role": "tool", "tool_call_id": "call_0", "content": f"{text} 2"},
            {"role": "tool", "content": f"{text} 3"},
        ]
    state = _fold(_read(_lmagent(tmp_path, messages)))
    _assert_valid(state)
    results = [part.content for message in state.messages if message.role == "tool" for part in message.parts]  # type: ignore[union-attr]
    assert results == ["first 1", "first 2", "first 3", "second 1", "second 2", "second 3"]
    ids = [call.id for message in state.messages for call in message.tool_calls]
    assert len(set(ids)) == 6


def test_replies_in_a_row_become_one_and_a_missing_beginning_is_said(tmp_path: Path) -> None:
    path = _agent_computer(
        tmp_path,
        [
            _line("assistant", "[compacted]"),
            _line("tool", "lost", call="x"),
            _line("assistant", "On."),
            _line("user", "ok"),
        ],
    )
    state = _fold(_read(path))
    _assert_valid(state)
    assert [message.text for message in state.messages] == [NO_BEGINNING, "[compacted]\n\nOn.", "ok"]
    assert state.user_texts == ["ok"]


def test_parts_images_and_long_results_are_handled(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "http://somewhere/a.png"}},
    ]
    path = _lmagent(
        tmp_path,
        [
            {"role": "user", "content": parts},
            {"role": "assistant", "content": "", "tool_calls": [_call("a")]},
            {"role": "tool", "tool_call_id": "a", "content": "x" * 50_000},
            {"role": "assistant", "content": "  "},
        ],
    )
    imported = _read(path)
    state = _fold(imported)
    _assert_valid(state)
    assert state.messages[0].parts[1] == Image("image/png", PIXEL)
    (result,) = [item for item in imported.events if isinstance(item, ev.ToolFinished)]
    assert result.size == 50_000
    assert len(result.content) < RESULT_CAP + 100
    assert "1 message part that is neither text nor an embedded image" in imported.left
    assert "1 empty assistant message" in imported.left
    assert any("longer than" in text for text in imported.left)


def test_an_id_that_cannot_be_used_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "my chat (1).jsonl"
    path.write_text(json.dumps(_line("user", "hi")))
    assert _read(path).session == OURS


@pytest.mark.parametrize(
    "content", ["", "{}", "null", '{"messages": 5}', "not a session\nat all", '{"role": "system"}']
)
def test_a_file_without_a_conversation_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(StoreError, match="no conversation"):
        _read(path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="could not be read"):
        _read(tmp_path / "nothing.json")


_TEXT = st.sampled_from(["", "hello", "x" * 10, "line\nline"])
_CALLS = st.lists(st.builds(_call, st.sampled_from(["", "a", "b"]), st.sampled_from(["read", "ls"])), max_size=3)
_MESSAGE = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, _TEXT),
    st.builds(lambda text, calls: {"role": "assistant", "content": text, "tool_calls": calls}, _TEXT, _CALLS),
    st.builds(
        lambda text, id: {"role": "tool", "content": text, "tool_call_id": id},
        _TEXT,
        st.sampled_from(["a", "b", "", None, 3]),
    ),
    st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(["system", "meta", 7]), _TEXT),
    st.sampled_from([{"role": "assistant", "content": {"x": 1}}, {"role": "user", "content": [3, None]}, 5, None]),
)


@pytest.mark.parametrize("write", [_lmagent, _agent_computer])
def test_whatever_a_file_holds_it_becomes_a_valid_conversation(
    tmp_path: Path, write: Callable[[Path, list[Any]], Path]
) -> None:
    @settings(max_examples=examples(150), deadline=None)
    @given(st.lists(_MESSAGE, max_size=12))
    def check(messages: list[Any]) -> None:
        path = write(tmp_path, messages)
        try:
            imported = _read(path)
        except StoreError:
            return
        _assert_valid(_fold(imported))

    check()
