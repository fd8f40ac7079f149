"""Texts made to be slow or deep are read to the end, in bounded depth. How long it takes is for `bench` to tell."""

import pytest
from textcalls_corpus import TOOLS

from lmagent.providers.textcalls import TextCallParser, find_calls, parse_text

PIECES = [
    "<",
    "[",
    '{"',
    "```",
    "```\n",
    "<tool_call>",
    '{"name":',
    '{"name":\n',
    "`",
    "` ",
    "<think>",
    "</think>",
    "Thought:\n",
]
PIECES += [
    '<tool_call>{"name":"read","arguments":{"path":"',
    "<function=x>",
    '<invoke name="x">',
    "[read(",
    "{“",
    "> \n",
]
PIECES += ["<start_function_call>call:read{path:", "<function=read>\n<parameter=path>\n", "[TOOL_CALLS]", "<|channel|>"]


@pytest.mark.parametrize("piece", PIECES)
def test_a_long_repetition_is_read_to_its_end(piece):
    text = piece * (100_000 // len(piece))
    parser = TextCallParser(TOOLS)
    for at in range(0, len(text), 997):
        parser.feed(text[at : at + 997])
    assert parser.finish() == parse_text(text, TOOLS)


@pytest.mark.parametrize("opening", ['{"a":', "[", '{"name": "read", "arguments": {"path": ', "[configure(options="])
def test_deep_nesting_is_no_recursion(opening):
    for text in (opening * 50_000, f"<tool_call>{opening * 50_000}</tool_call>", opening * 50_000 + "}" * 50_000):
        assert not [call for call in parse_text(text, TOOLS).calls if not call.fault]


def test_lone_surrogates_and_control_characters_do_no_harm():
    text = '<tool_call>{"name": "write", "arguments": {"path": "\\ud800", "content": "\x00\x1b"}}</tool_call>\ud800'
    parsed = parse_text(text, TOOLS)
    assert parsed.calls[0].name == "write"
    parsed.calls[0].arguments_text.encode()


@pytest.mark.parametrize("depth", [50, 300, 900])
def test_deep_arguments_with_a_lone_surrogate_are_handed_on(depth):
    lists = "[" * depth + "]" * depth
    text = f'<tool_call>{{"name": "read", "arguments": {{"path": "a\\ud800", "limit": {lists}}}}}</tool_call>'
    (call,) = find_calls(text, TOOLS, cut=False).calls
    call.tool_call().arguments.encode()


def test_a_number_of_thousands_of_digits_is_a_fault_of_the_call():
    digits = "9" * 5000
    (call,) = parse_text(
        f'<tool_call>{{"name":"read","arguments":{{"path":"a","limit":{digits}}}}}</tool_call>', TOOLS
    ).calls
    assert call.fault == "a number has too many digits"
    assert digits in call.arguments
