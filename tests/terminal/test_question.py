"""The line that asks on a terminal."""

from __future__ import annotations

from lmagent.terminal.question import approval


def test_a_call_is_allowed_and_a_servers_question_is_answered() -> None:
    assert approval("write", "") == "Allow write? y yes · n no · or say why not: "
    assert approval("the server shop", "") == "Your answer to the server shop? y yes · n no · or type the values: "
