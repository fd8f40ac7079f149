"""Paging: whatever the files, the window and the tokenizer, a model that follows the headers is shown every line."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.amount import examples

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import pages

pytestmark = pytest.mark.long

LETTERS = "abc xyz 019 ,;:(){}='\"\t.äß€漢🙂"


@st.composite
def files(draw: st.DrawFn) -> list[str]:
    """Lines of a file: how many, how wide and which letters is drawn, the letters themselves come from one number."""
    random, widest = Random(draw(st.integers(0, 1 << 32))), draw(st.integers(0, 300))
    letters = LETTERS[: draw(st.integers(1, len(LETTERS)))]
    lines = draw(st.integers(1, 500))
    return ["".join(random.choices(letters, k=random.randint(0, widest))) for _ in range(lines)]


@pytest.mark.usefixtures("no_settings")
@settings(max_examples=examples(20), deadline=None)
@given(
    contents=st.lists(files(), min_size=1, max_size=8),
    window=st.integers(8192, 262_144),
    ratio=st.floats(2.5, 4.0),
    reads=st.integers(1, 10),
)
def test_no_line_is_lost_between_the_pages_of_a_file(
    contents: list[list[str]], window: int, ratio: float, reads: int
) -> None:
    named = {f"src/{number}.txt": lines for number, lines in enumerate(contents)}
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", home)
        reader = anyio.run(partial(pages.play, Path(home) / "workspace", named, ratio, window, reads))
    assert (reader.lost, reader.missing()) == (0, 0)
