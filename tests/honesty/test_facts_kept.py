"""What survives compaction: fifty facts, cut at least three times in a window of 16,384 tokens."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest
from planted import FACTS, IN_PROMPT, play


@pytest.mark.parametrize("words", [900, 4000], ids=["a long message", "a message too long for the window"])
def test_demands_todos_and_paths_stay_in_the_prompt_and_everything_is_found_in_two_calls(folder, words):
    outcome = anyio.run(play, folder, words)
    assert len({fact.answer for fact in FACTS}) == 50
    assert outcome.compactions >= 3
    gone = [fact.answer for fact in FACTS if fact.kind in IN_PROMPT and not outcome.prompt[fact.answer]]
    assert gone == []
    lost = [fact.answer for fact in FACTS if not outcome.calls[fact.answer]]
    assert lost == []
    assert set(Counter(outcome.calls.values())) <= {1, 2}
