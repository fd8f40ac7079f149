"""A reply that the token limit ended, wherever: what runs of it would have run of the whole."""

import json
import os

import pytest
from textcalls_corpus import TOOLS, late_thought, rows

from lmagent.providers.textcalls import find_calls, parse_text

ROWS = [row for row in rows() if not late_thought(row)]
FILES = sorted({row["file"] for row in ROWS})


def running(text):
    """What would run of a text that was cut here."""
    found = find_calls(text, TOOLS, cut=True)
    return [(call.name, call.tool_call().arguments) for call in found.calls if not call.truncated]


def readable(calls):
    return [(name, json.loads(text)) for name, text in calls if text[:1] == "{" and _is_json(text)]


def _is_json(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


FINE = 1 if "LMAGENT_ALL" in os.environ else 3
"""Characters from one cut to the next in the long test."""


@pytest.mark.parametrize("stride", [7, pytest.param(FINE, marks=pytest.mark.long)])
@pytest.mark.parametrize("file", FILES)
def test_no_call_of_a_cut_reply_runs_that_is_not_in_the_whole_one(file, stride):
    for row in ROWS:
        if row["file"] != file:
            continue
        whole = [(call.name, call.arguments) for call in parse_text(row["text"], TOOLS).calls if not call.fault]
        for end in range(1, len(row["text"]), stride):
            if row["text"][:end].rstrip().endswith(("</tool_call>", "</tool>")) and row["file"] == "nothing":
                continue  # closed, and nothing says yet that a sentence goes on
            wrong = [call for call in readable(running(row["text"][:end])) if call not in whole]
            assert not wrong, (row["note"], row["text"][:end])


CALL = '<tool_call>\n{"name": "ls", "arguments": {"path": "a"}}\n</tool_call>'
OPENED = "<tool_call>\n<function=write>\n<parameter=path>\nd.md\n</parameter>\n<parameter=content>\n"
INVOKED = '<invoke name="write">\n<parameter name="path">d</parameter>\n<parameter name="content">'


@pytest.mark.parametrize(
    "text",
    [
        OPENED + "Intro\n<function=ls>\n</function>\nmore te",
        OPENED + "Intro\n<function=ls>\n</function>",
        OPENED + "<fs>\n<function>\n<x/>\n</function>\n</fs>\n<func",
        OPENED + "a line",
        OPENED + 'END = "</parameter></function>"\npri',
        f'<minimax:tool_call>\n{INVOKED}Claude:\n<invoke name="ls">\n</invoke>\nmore te',
        f"{INVOKED}a\n</invoke>\nmore te",
        f"Look at {CALL}",
        f"For example:\n```json\n{CALL[12:-13]}\n```",
        CALL.removesuffix("\n</tool_call>"),
    ],
)
def test_a_call_that_more_text_could_change_does_not_run_at_the_token_limit(text):
    assert running(text) == []


def test_a_closed_call_runs_at_the_token_limit():
    assert running(CALL) == running(f"{CALL}\n<tool_call>\n{{") == [("ls", '{"path":"a"}')]
