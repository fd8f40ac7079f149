"""The text of a reply as it grows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lmagent.modelserver.engine.textflow import Cutter, Detokenizer

PIECES = st.lists(st.text("ab.", max_size=4), max_size=12)


@given(PIECES, st.lists(st.text("ab.", min_size=1, max_size=3), max_size=2))
def test_text_is_cut_where_the_first_stop_text_begins_however_it_comes_in_pieces(pieces, stops):
    cutter = Cutter(stops)
    shown = "".join(cutter.feed(piece) for piece in pieces) + cutter.rest()
    whole = "".join(pieces)
    # The stop text that is complete first ends the reply; a longer one that began earlier may still be open then.
    ends = [(whole.find(stop) + len(stop), whole.find(stop)) for stop in stops if stop in whole]
    assert cutter.stopped == bool(ends)
    assert whole.startswith(shown)
    assert shown == whole if not ends else not any(stop in shown for stop in stops)


def test_what_may_begin_a_stop_text_is_held_back_and_no_more():
    cutter = Cutter(["STOP"])
    assert [cutter.feed(piece) for piece in ("go ST", "ART S", "T", "OP on")] == ["go ", "START ", "", ""]
    assert cutter.stopped


@given(st.text())
def test_tokens_that_are_parts_of_characters_come_out_as_whole_ones(text):
    def decode(tokens) -> str:
        return bytes(tokens).decode("utf-8", "replace")

    detokenizer = Detokenizer(decode)
    pieces = [detokenizer.feed(token) for token in text.encode("utf-8", "ignore")]
    assert "".join(pieces) + detokenizer.rest() == text.encode("utf-8", "ignore").decode()
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text
