"""What a person sees of a reply in plan mode."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from lmagent.planning.proposing import PlanWords

PLAN = json.dumps({"title": "t", "goal": "g", "steps": [{"id": "1", "description": "look"}]})
BROKEN = '{"goal": "g", "steps": ['

words = st.lists(st.sampled_from(["I looked.", "`a.txt`", "{as}", "\n", "```json\n", "\n```", PLAN, BROKEN])).map(
    " ".join
)


def shown(filter: PlanWords, text: str, size: int) -> str:
    return "".join(filter.feed(text[at : at + size]) for at in range(0, len(text), size))


@settings(deadline=None)
@given(words, st.integers(1, 30), st.booleans())
def test_a_reply_is_shown_whole_in_whatever_pieces_it_comes_but_for_its_plan(text, size, planning):
    filter = PlanWords()
    filter.planning = planning
    begun = shown(filter, text, size)
    rest, whole = filter.finish(text)
    assert begun + rest == whole
    assert ("steps" in whole) == (not planning and "steps" in text)
    if "steps" not in text:
        assert whole == text


def test_what_was_held_back_of_a_reply_that_broke_off_is_forgotten():
    filter = PlanWords()
    filter.planning = True
    assert shown(filter, f"Here: {PLAN}", 7) == "Here: "
    filter.drop()
    assert shown(filter, f"Here: {PLAN}", 7) == "Here: "
