import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.amount import examples
from textcalls_corpus import TOOLS, late_thought, rows

from lmagent.providers.textcalls import TextCallParser, parse_text

ROWS = rows()
FILES = sorted({row["file"] for row in ROWS})


def fed(text, sizes):
    parser = TextCallParser(TOOLS)
    shown, at = [], 0
    for size in sizes:
        shown.append(parser.feed(text[at : at + size]))
        at += size
    shown.append(parser.feed(text[at:]))
    return "".join(shown), parser, parser.finish()


def agrees(row, sizes):
    text = row["text"]
    shown, parser, parsed = fed(text, sizes)
    assert parsed == parse_text(text, TOOLS)
    if not late_thought(row):
        assert parsed.content == shown + parser.rest


@pytest.mark.parametrize("file", FILES)
def test_a_text_in_single_characters_gives_what_the_whole_gives(file):
    for row in ROWS:
        if row["file"] == file:
            agrees(row, [1] * len(row["text"]))


@pytest.mark.parametrize("file", FILES)
def test_a_text_in_two_pieces_gives_what_the_whole_gives(file):
    for row in ROWS:
        if row["file"] == file:
            for cut in range(0, len(row["text"]), max(1, len(row["text"]) // 20)):
                agrees(row, [cut])


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(ROWS), st.lists(st.integers(1, 40), max_size=60))
def test_a_text_in_any_pieces_gives_what_the_whole_gives(row, sizes):
    agrees(row, sizes)


WORDS = """\
<tool_call> </tool_call> ``` ` <think> </think> <function=read> <parameter=path> </parameter> </function> { } [ ] ( )
[TOOL_CALLS] ls [ARGS] " <|channel|> final <|message|> <|end|> text read read("a") [ls()] <|python_tag|> <|tool_
<arg_key>path</arg_key> <arg_value> </arg_value> </invoke> <function_calls> </function_calls> <|im_end|> </tool>"""
BLANKS = (
    "\n",
    " ",
    "    ",
    "> ",
    "- ",
    "A sentence. ",
    "```json\n",
    "Thought: a\n",
    "Action: ls\n",
    "Action Input: {}\n",
)
CALLS = ('{"name": "read", "arguments": {"path": "a"}}', "<tool_call>ls\n", "all\n", ">>>ls\n", '<invoke name="ls">')
MARKUP = st.sampled_from((*WORDS.split(), *BLANKS, *CALLS, '<tool name="ls">', "Observation:"))


@settings(max_examples=examples(600), deadline=None)
@given(st.lists(MARKUP, max_size=12).map("".join), st.integers(0, 1000))
def test_any_mixture_of_markup_streams_to_what_the_whole_gives(text, seed):
    pick = random.Random(seed)
    shown, parser, parsed = fed(text, [pick.randint(1, 5) for _ in text])
    assert parsed == parse_text(text, TOOLS)
    if "</think>" not in text:
        assert parsed.content == shown + parser.rest


def test_prose_is_shown_as_it_comes():
    parser = TextCallParser(TOOLS)
    assert "".join(parser.feed(piece) for piece in ("I will ", "look at ", "it and ", "then tell you.")) == (
        "I will look at it and then tell you."
    )


def test_code_in_a_fence_is_shown_as_it_comes():
    parser = TextCallParser(TOOLS)
    code = "So:\n```python\nfor x in range(3):\n    print(x)\n" + "y = 1\n" * 60
    assert len("".join(parser.feed(letter) for letter in code)) > len(code) - 80


def test_text_behind_a_thought_is_shown_as_it_comes():
    parser = TextCallParser(TOOLS)
    shown = "".join(
        parser.feed(piece) for piece in ("<think>\nhm", " hm\n</thi", "nk>\n\nThe answer", " is here: 4", "2")
    )
    assert shown == "The answer is here: 42"


@pytest.mark.parametrize(("opening", "closing"), [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
def test_a_thought_is_shown_as_a_thought_as_it_comes(opening, closing):
    parser = TextCallParser(TOOLS)
    pieces = [
        parser.read(piece)
        for piece in (
            opening,
            "I wonder",
            f" <tool_call>{{}} {closing[:3]}",
            closing[3:],
            "\n\nThe answer is",
            " 42.\n",
        )
    ]
    assert pieces[1:3] == [[("thinking", "I wonder")], [("thinking", " <tool_call>{} ")]]
    assert [text for piece in pieces[3:] for kind, text in piece if kind == "text"] == ["The answer is", " 42."]


def test_a_line_of_a_list_is_shown_when_it_is_complete_and_code_in_a_line_when_it_is_closed():
    parser = TextCallParser(TOOLS)
    shown = [parser.feed(piece) for piece in ("- one\n- tw", "o\nSee `a.p", "y` for", " it")]
    assert shown == ["- one", "\n- two\nSee `a.p", "y` for", " it"]


def test_no_markup_of_a_call_is_shown():
    for row in ROWS:
        if row["file"] not in ("nothing", "mixed") and not late_thought(row):
            shown, _, parsed = fed(row["text"], [3] * len(row["text"]))
            assert parsed.content.startswith(shown), row["note"]
