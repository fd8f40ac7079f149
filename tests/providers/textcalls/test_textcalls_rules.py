import json

import pytest
from textcalls_corpus import TOOLS

from lmagent.providers.formats.markup import RESULTS
from lmagent.providers.textcalls import parse_text

CALL = '<tool_call>\n{"name": "ls", "arguments": {"path": "a"}}\n</tool_call>'
BARE = '{"name": "ls", "arguments": {"path": "a"}}'


def names(text, tools=TOOLS):
    return [call.name for call in parse_text(text, tools).calls]


def test_the_order_of_calls_is_kept_across_formats():
    text = f'{CALL}\n<function=get_time></function>\n[TOOL_CALLS]read[ARGS]{{"path": "b"}}'
    assert names(text) == ["ls", "get_time", "read"]


def test_an_unknown_tool_is_returned_from_markup_and_left_as_text_without():
    assert names('<tool_call>{"name": "fly", "arguments": {}}</tool_call>') == ["fly"]
    assert parse_text('{"name": "fly", "arguments": {}}', TOOLS).content == '{"name": "fly", "arguments": {}}'


def test_without_tools_only_markup_makes_a_call():
    assert names(CALL, []) == ["ls"]
    assert names(BARE, []) == []


@pytest.mark.parametrize("tag", ["think", "thinking", "thought", "reasoning", "antThinking", "antml:thinking"])
def test_nothing_inside_a_thought_runs(tag):
    assert names(f"<{tag}>\n{CALL}\n</{tag}>\nDone.") == []
    assert names(f"<{tag}>\n{CALL}\n") == []
    assert names(f"{CALL}\n</{tag}>\nDone.") == []
    assert names(f"<{tag}>\na\n</{tag}>\n{CALL}") == ["ls"]


ENDS_EARLY = {
    "a cut call": f'{CALL}\n<tool_call>\n{{"name": "ls", "argu',
    "an invented observation": f"{CALL}\nAction: ls\nAction Input: {{}}\nObservation: a",
    "an input of bare text": "Action: shell\nAction Input: ls -l",
    "a result block that is not closed": f"{CALL}\n<tool_response>\nfile",
    "code behind a token": "<|python_tag|>ls.call(path='a')",
    "a cut list": "[ls(), ls(path='x",
    "a fence that ends a call": "<｜tool▁call▁begin｜>function<｜tool▁sep｜>ls\n```json\n{}\n```",
}


@pytest.mark.parametrize("how", ENDS_EARLY)
def test_nothing_runs_that_stands_before_a_closing_thought_tag_which_the_template_opened(how):
    parsed = parse_text(f"Well.\n{ENDS_EARLY[how]}\n</think>\n\nNo call is needed.", TOOLS)
    assert (parsed.calls, parsed.cut, parsed.content) == ((), None, "No call is needed.")
    after = parse_text(f"Well.\n{ENDS_EARLY[how]}\n</think>\n\n{CALL}", TOOLS)
    assert [(call.name, call.fault) for call in after.calls] == [("ls", "")]


def test_a_closing_thought_tag_in_the_text_of_a_call_takes_nothing_with_it():
    opened = "<function=write>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n"
    written = f"{opened}</think>\n</parameter>\n</function>"
    assert names(f"{CALL}\n{written}") == ["ls", "write"]


def test_a_thought_that_is_whole_in_a_line_of_code_ends_nothing_else():
    assert names(f"So:\n\n    <think>I call.</think>\n    {BARE}\n\nOk.") == []


@pytest.mark.parametrize("behind", [CALL, "<|im_end|>", f" {CALL}"])
def test_calls_in_a_row_within_a_sentence_are_text(behind):
    line = CALL.replace("\n", "")
    text = f"The text {line}{behind.replace(CALL, line)} would call a tool."
    parsed = parse_text(text, TOOLS)
    assert (parsed.calls, parsed.content) == ((), text)


@pytest.mark.parametrize(
    "text",
    [
        f"`{CALL}`",
        f"Look:\n```\n{CALL}\n```\nso.",
        "\n".join(f"    {line}" for line in CALL.splitlines()),
        "\n".join(f"> {line}" for line in CALL.splitlines()),
        f"The text {CALL} is a call.",
    ],
)
def test_a_quoted_call_is_text(text):
    parsed = parse_text(text, TOOLS)
    assert (parsed.calls, parsed.content) == ((), text)


def test_a_fenced_call_counts_only_at_the_end_of_the_message():
    fenced = f"```json\n{BARE}\n```"
    assert names(f"So:\n{fenced}") == ["ls"]
    assert names(f"{fenced}\nSo.") == []


def test_a_message_that_is_one_fence_around_a_native_call_is_a_call():
    assert names(f"```\n{CALL}\n```") == ["ls"]
    assert names(f"So:\n```\n{CALL}\n```") == []


def test_a_cut_call_is_named_and_not_among_the_calls():
    parsed = parse_text(f'{CALL}\n<tool_call>\n{{"name": "shell", "arguments": {{"command": "rm -rf /tmp/x', TOOLS)
    assert [call.name for call in parsed.calls] == ["ls"]
    assert parsed.cut == "shell"


def test_a_whole_call_is_never_reported_as_cut():
    assert parse_text(CALL, TOOLS).cut is None


def test_damaged_arguments_come_back_as_they_came_with_the_place_of_the_fault():
    (call,) = parse_text('<tool_call>{"name": "ls", "arguments": {"path": }}</tool_call>', TOOLS).calls
    assert call.arguments == call.arguments_text == '{"path": }}'
    assert "line 1 column" in call.fault
    assert call.raw == '{"name": "ls", "arguments": {"path": }}'


def test_arguments_as_text_are_json():
    (call,) = parse_text(CALL, TOOLS).calls
    assert json.loads(call.arguments_text) == {"path": "a"}


def test_what_follows_an_invented_observation_is_dropped():
    parsed = parse_text(f"Action: ls\nAction Input: {{}}\nObservation: a\n{CALL}\nDone.", TOOLS)
    assert [call.arguments for call in parsed.calls] == [{}]
    assert parsed.content == ""


@pytest.mark.parametrize(("opening", "closing"), list(RESULTS.items()))
def test_a_call_inside_a_result_block_is_text(opening, closing):
    for call in (CALL, BARE):
        text = f"{opening}\n{call}\n{closing}\nThat is what the file holds."
        parsed = parse_text(text, TOOLS)
        assert (parsed.calls, parsed.content) == ((), text)


def test_a_result_block_that_is_only_mentioned_hides_no_call():
    assert names(f"The tag <tool_response> holds it.\n{CALL}") == ["ls"]
    assert names(f"<tool_response>\n{CALL}") == ["ls"]


def test_calls_in_the_form_of_python_are_found_in_a_list_in_tags():
    assert names('<tool_call>[ls(path="a"), ls()]</tool_call>') == ["ls", "ls"]


@pytest.mark.parametrize("text", ["<TOOLCALL>[hello]</TOOLCALL>", "[TOOL_CALLS][hello]", "<|tool_call|>[ls]"])
def test_a_list_of_something_else_than_calls_is_not_swallowed(text):
    assert parse_text(text, TOOLS).content == text


def test_an_id_is_handed_on():
    text = "<|tool_call_begin|>functions.ls:2<|tool_call_argument_begin|>{}<|tool_call_end|>"
    (call,) = parse_text(text, TOOLS).calls
    assert (call.name, call.id, call.format) == ("ls", "functions.ls:2", "kimi-k2")
