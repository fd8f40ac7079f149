"""What stands on standard output when a reply breaks off and is asked for again."""

from __future__ import annotations

import io

import pytest

from lmagent.core import events as ev
from lmagent.core.messages import NO_WORDS, assistant
from lmagent.terminal.render import Renderer
from lmagent.terminal.style import PlainStyle


def said(text: str) -> ev.MessageAdded:
    return ev.MessageAdded(message=assistant(text), origin="model")


RETRY = ev.RetryScheduled(reason="it broke off", attempt=1, delay=1.0)


def printed(*events: ev.Event | str) -> str:
    out = io.StringIO()
    printer = Renderer(PlainStyle(), out.write, aside=(PlainStyle(), lambda _: None), verbatim=True)
    for event in events:
        printer(ev.TextDelta(text=event) if isinstance(event, str) else event)
    return out.getvalue()


@pytest.mark.parametrize("pieces", [("Hello world",), ("Hel", "lo ", "world"), tuple("Hello world"), ()])
def test_in_a_pipe_a_reply_that_comes_again_stands_there_once(pieces: tuple[str, ...]) -> None:
    assert printed("Hello", " wor", RETRY, *pieces, said("Hello world")) == "Hello world\n"


def test_in_a_pipe_nothing_is_left_of_a_reply_that_broke_off() -> None:
    assert printed("Hello wor", RETRY, "Help ", "yourself", said("Help yourself")) == "Help yourself\n"
    assert printed("One", RETRY, "Two t", RETRY, "Two three", said("Two three")) == "Two three\n"
    assert printed("Hello wor", RETRY, said("")) == ""


def test_on_a_terminal_a_reply_that_comes_again_is_printed_whole() -> None:
    shown = list[str]()
    renderer = Renderer(PlainStyle(), shown.append)
    for event in (ev.TextDelta(text="One.\n\nTw"), RETRY, ev.TextDelta(text="One.\n\nTwo."), said("One.\n\nTwo.")):
        renderer(event)
    assert "".join(shown) == "One.\nit broke off; trying again in 1 s\nOne.\n\nTwo.\n"


def test_a_reply_without_a_word_prints_none() -> None:
    assert printed(said(NO_WORDS), "Done.", said("Done.")) == "Done.\n"


def test_two_replies_are_two_lines() -> None:
    assert printed("I look.", said("I look."), "It is there.", said("It is there.")) == "I look.\nIt is there.\n"
