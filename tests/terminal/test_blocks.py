from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lmagent.terminal.render import BlockStream

TEXT = "# Title\n\nA paragraph\nof two lines.\n\n- one\n- two\n\n```python\nx = 1\n\ny = 2\n```\nAfter the code.\n"
BLOCKS = ["# Title", "A paragraph\nof two lines.", "- one\n- two", "```python\nx = 1\n\ny = 2\n```", "After the code."]


def blocks(pieces: list[str]) -> list[str]:
    stream = BlockStream()
    found = [block for piece in pieces for block in stream.feed(piece)]
    return [*found, *stream.finish()]


def test_paragraphs_lists_and_code_are_blocks_and_blank_lines_inside_code_do_not_end_one():
    assert blocks([TEXT]) == BLOCKS


@given(st.lists(st.integers(0, len(TEXT)), max_size=12))
def test_the_blocks_are_the_same_however_the_text_arrives(cuts):
    places = [0, *sorted(cuts), len(TEXT)]
    assert blocks([TEXT[a:b] for a, b in pairwise(places)]) == BLOCKS


def test_a_fence_that_is_never_closed_is_the_last_block():
    assert blocks(["```\ncode\n\nmore"]) == ["```\ncode\n\nmore"]


def test_what_has_not_ended_stands_in_the_tail_and_can_be_dropped():
    stream = BlockStream()
    assert stream.feed("half a par") == []
    assert stream.tail == "half a par"
    stream.drop()
    assert stream.finish() == []


def test_a_heading_and_code_are_blocks_without_blank_lines_around_them():
    text = "Before.\n# One\ntext\n```\n# no heading\n```\n## Two\n### Three\n- item\n  ```\n  in the item\n  ```\n"
    item = "- item\n  ```\n  in the item\n  ```"
    assert blocks([text]) == ["Before.", "# One", "text", "```\n# no heading\n```", "## Two", "### Three", item]
    assert blocks(list(text)) == blocks([text])
