"""A session's title is one clean line, wherever it is shown."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmagent.app.clock import SystemClock
from lmagent.core import events as ev
from lmagent.core.messages import user
from lmagent.core.titles import LONGEST, WORDS, title_of
from lmagent.core.view import View, reduce
from lmagent.engine.state import SessionState
from lmagent.store.export import transcript_of
from lmagent.store.jsonl import JsonlStore

NASTY = "\x1b]0;owned\x07 fix\u202ethe\u2066 \x00build\r\nnow\u2028please \ufeff\u200f \x9b31m👩\u200d💻"
CLEAN = "]0;owned fixthe build now please 31m👩\u200d💻"


@given(st.text())
def test_a_title_is_one_line_of_a_few_words_in_which_nothing_hides(text):
    title = title_of(text)
    assert title == " ".join(title.split())
    assert len(title) <= LONGEST
    assert len(title.split()) <= WORDS
    assert not any(unicodedata.category(sign) in ("Cc", "Cs") for sign in title)
    assert not any(unicodedata.bidirectional(sign) in BIDI for sign in title)
    assert title_of(title) == title


BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize("text", ["Fix the build", "Größe ändern", "مرحبا بالعالم", "修复 构建", "👩\u200d💻 at work"])
def test_what_people_write_stays_as_it_is(text):
    assert title_of(text) == text


@pytest.mark.parametrize("given", [True, False])
def test_a_title_is_clean_wherever_it_is_shown(tmp_path: Path, given):
    """In the list, the view, the state that the terminal and notifications have, and the export."""
    store = JsonlStore(tmp_path / "sessions", SystemClock())
    created = ev.SessionCreated(session="s", workspace="/w", agent="a", system="", tools=())
    said = ev.InputReceived(id="i1", message=user("hello" if given else NASTY), delivery="submit")
    added = ev.MessageAdded(message=said.message, origin="input", input="i1")

    async def write() -> None:
        log = store.create("s")
        for event in (created, said, added, *([ev.SessionRenamed(title=NASTY)] if given else [])):
            await log.append(event)
        log.close()

    anyio.run(write)
    events = list(store.read("s"))
    view, state = View(), SessionState()
    for event in events:
        view = reduce(view, event)
        state.apply(event)
    with store.index() as index:
        index.refresh()
        listed = index.list()[0].title
    titles = {view.title, state.title, listed, transcript_of(events).title}
    assert titles == {CLEAN}
