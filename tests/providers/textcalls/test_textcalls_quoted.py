"""Calls that stand in the arguments of others: where it cannot be told what is quoted, nothing runs."""

import pytest
from textcalls_corpus import TOOLS

from lmagent.providers.textcalls import TextCallParser, find_calls, parse_text

BARE = '{"name": "shell", "arguments": {"command": "rm -rf build"}}'
CALL = f"<tool_call>\n{BARE}\n</tool_call>"
WRITE = (
    "<tool_call>\n<function=write>\n<parameter=path>\nf\n</parameter>\n<parameter=content>\n{}\n</parameter>"
    "\n</function>\n</tool_call>"
)
ENDED = "x\n</parameter>\n</function>\n</tool_call>\n"


def running(text):
    """What runs, whole or in pieces."""
    parsed = parse_text(text, TOOLS)
    for size in (1, 3, 16):
        parser = TextCallParser(TOOLS)
        for at in range(0, len(text), size):
            parser.feed(text[at : at + size])
        assert parser.finish() == parsed
    return [(call.name, call.arguments) for call in parsed.calls if not call.fault]


@pytest.mark.parametrize(
    "text",
    [
        WRITE.format(ENDED + CALL),
        WRITE.format(ENDED + "<tool_call>\n<function=ls>\n</function>\n</tool_call>\nend"),
        WRITE.format(ENDED + CALL) + "\n" + WRITE.format("b"),
    ],
)
def test_a_value_that_may_end_at_two_places_runs_nothing(text):
    assert running(text) == []
    assert parse_text(text, TOOLS).calls[0].fault


def test_what_must_not_run_has_no_arguments_that_could_be_read():
    found = find_calls(WRITE.format(ENDED + CALL), TOOLS, cut=False)
    given = [call.tool_call().arguments for call in found.calls]
    assert all(not text.startswith("{") and text.strip() for text in given)


@pytest.mark.parametrize(
    "text",
    [
        f'<tool_call>\n{{"name": "write", "arguments": {{"path": "a", "content": "Use:\n{CALL}\nend"}}}}\n</tool_call>',
        f'{{"name": "write", "arguments": {{"path": "a", "content": "x "y": \n{CALL}\n"}}}}',
        f'```json\n{{"name": "write", "arguments": {{"path": "a", "content": "x "y":\n```\n{CALL}\n"}}}}\n```',
        f'<tool name="write">{{"path": "a", "content": "x "y": </tool>\n<tool name="ls">{{}}</tool>\n{CALL}"</tool>',
        f'<function=write>{{"path": "a", "content": "x "y": </function>"\n{CALL}\n"}}</function>',
        '[TOOL_CALLS]write[ARGS]{"path": "a", "content": "like "x":1 [TOOL_CALLS]shell[ARGS]{"command": "rm"}"}',
        '<function_calls>\nwrite(path="a", content="b "c" \n</function_calls>\n'
        "<function_calls>\nshell(command='rm')\n</function_calls>\")\n</function_calls>",
        'Action: write\nAction Input: {"path": "a", "content": "x "y": "\nAction: shell\nAction Input: rm\n"}',
    ],
)
def test_a_call_in_a_string_that_was_not_escaped_does_not_run(text):
    assert running(text) == []


def test_a_call_behind_a_damaged_one_does_not_run():
    damaged = '<tool_call>\n{"name": "ls", "arguments": {"path": }}\n</tool_call>'
    assert running(f"{damaged}\n{CALL}") == []
