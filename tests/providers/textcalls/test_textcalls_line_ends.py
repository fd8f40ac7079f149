"""A reply whose lines end as on Windows is read as any other."""

from typing import Any

import pytest
from textcalls_corpus import TOOLS, calls_of, rows, same

from lmagent.providers.textcalls import ParsedText, TextCallParser, parse_text

FILES = sorted({row["file"] for row in rows()})


def with_plain_line_ends(value: Any) -> Any:
    """A copy in which no text has any other."""
    if isinstance(value, dict):
        return {key: with_plain_line_ends(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_plain_line_ends(item) for item in value]
    return value.replace("\r\n", "\n") if isinstance(value, str) else value


def in_pieces(text: str) -> ParsedText:
    parser = TextCallParser(TOOLS)
    for at in range(0, len(text), 3):
        parser.feed(text[at : at + 3])
    return parser.finish()


@pytest.mark.parametrize("file", FILES)
def test_a_text_with_line_ends_of_windows_gives_what_it_gives_with_plain_ones(file):
    for row in rows():
        if row["file"] != file or "\n" not in row["text"] or "\r" in row["text"]:
            continue
        plain, text = parse_text(row["text"], TOOLS), row["text"].replace("\n", "\r\n")
        read = parse_text(text, TOOLS)
        assert same(with_plain_line_ends(calls_of(read)), calls_of(plain)), row["note"]
        assert read.cut == plain.cut, row["note"]
        assert in_pieces(text) == read, row["note"]


def test_line_ends_of_windows_inside_a_value_stay():
    content = "<parameter=content>\none\r\ntwo\r\n\n</parameter>\n</function>"
    text = f"<function=write>\n<parameter=path>\na\n</parameter>\n{content}"
    for whole in (text, text.replace("\r\n", "\n").replace("\n", "\r\n")):
        (call,) = parse_text(whole, TOOLS).calls
        assert call.arguments == {"path": "a", "content": "one\r\ntwo\r\n"}
