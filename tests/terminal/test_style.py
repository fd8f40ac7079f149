import io
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from lmagent.core import events as ev
from lmagent.core.messages import assistant
from lmagent.headless.life import LiveRows
from lmagent.terminal.render import Renderer
from lmagent.terminal.rich_style import RichStyle, wrapped
from lmagent.terminal.style import PlainStyle

ANSWER = """Here is what I found.

# Summary
- one
- two

That is all.

| a | b |
|---|---|
| 1 | 2 |

```python
x = 1


y = 2
```
The end."""


def rows_of(text: str, style) -> list[str]:
    printed: list[str] = []
    Renderer(style, printed.append)(ev.MessageAdded(message=assistant(text), origin="model"))
    return [re.sub(r"\x1b\[[0-9;]*m", "", row).rstrip() for row in "".join(printed).split("\n")]


def test_markdown_blocks_have_one_blank_line_between_them():
    rows = rows_of(ANSWER, RichStyle(lambda: 60))
    blank = [number for number, row in enumerate(rows[:-1]) if not row]
    assert rows[0] == "Here is what I found."
    assert rows[1] == ""
    assert rows[rows.index(" x = 1") - 1] == ""
    assert rows[rows.index(" x = 1") + 1 : rows.index(" y = 2")] == ["", ""]  # those of the code
    assert rows[rows.index("That is all.") - 1] == ""
    doubled = [number for number in blank if number - 1 in blank]
    assert doubled == [rows.index(" y = 2") - 1]


def test_plain_text_keeps_the_blank_lines_between_paragraphs():
    assert rows_of("# Done\n\nWritten.\nAnd read.", PlainStyle()) == ["# Done", "", "Written.", "And read.", ""]


def test_a_long_line_is_broken_between_words_and_keeps_its_indent():
    text = "  → load the model with a larger context length, or set LLM_URL to another server"
    assert wrapped(text, 40) == [
        "  → load the model with a larger",
        "  context length, or set LLM_URL to",
        "  another server",
    ]
    assert RichStyle(lambda: 40).line(text, "warning").count("\x1b[33m  ") == 3


@given(st.text(alphabet=" ab字\u0301", max_size=120), st.integers(12, 40))
def test_no_row_is_wider_than_the_terminal_and_no_letter_is_lost(text, width):
    rows = wrapped(text, width)
    assert all(cell_len(row) < width for row in rows) or len(rows) == 1
    assert "".join("".join(rows).split()) == "".join(text.split())


def test_a_word_longer_than_the_terminal_is_the_only_one_that_is_broken():
    assert wrapped("a " + "x" * 25 + " b", 11) == ["a", "x" * 10, "x" * 10, "xxxxx b"]


def test_without_colours_the_layout_and_bold_text_remain():
    text = RichStyle(lambda: 40, "none").markdown("Some **bold** text and `code`.\n\n- item")
    assert "\x1b[1mbold" in text
    assert not re.search(r"\x1b\[(?:[0-9;]*;)?[34]\d", text)
    assert RichStyle(lambda: 40, "none").line("no", "fault") == "no\n"


def test_rows_that_a_narrower_terminal_has_broken_are_erased_whole():
    out, width = io.StringIO(), [80]
    live = LiveRows(out, lambda: width[0])
    live.draw(["a" * 70, "b" * 10])
    drawn = len(out.getvalue())
    width[0] = 40
    live.erase()
    # Two rows of the first line, one of the second.
    assert out.getvalue()[drawn:] == "\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K"
