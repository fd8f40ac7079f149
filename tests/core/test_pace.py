"""How fast the model is in this session, and what made a call slow."""

from lmagent.core.events import StepFinished
from lmagent.core.model import Usage
from lmagent.core.view import Pace


def step(prompt: int, reply: int = 10, cached: int = 0, first: float = 1.0, total: float = 2.0) -> StepFinished:
    return StepFinished(
        step=1, usage=Usage(prompt, reply, cached), finish_reason="stop", first_token_s=first, total_s=total
    )


def after(*steps: StepFinished) -> Pace:
    pace = Pace()
    for one in steps:
        pace = pace.started(one.usage.prompt_tokens).finished(one)
    return pace


def test_reading_is_measured_by_what_was_not_in_the_cache():
    assert after(step(1000, first=10.0, total=11.0)).read_per_s == 100.0
    assert after(step(5000, cached=4000, first=10.0, total=11.0)).read_per_s == 100.0
    assert after(step(1000, first=10.0), step(1300, cached=1000, first=3.0)).read_per_s == 100.0
    assert after(step(1000, first=10.0), step(1300, first=3.0)).read_per_s == 100.0  # it does not say, and kept it


def test_short_prompts_tell_nothing_of_the_speed():
    assert after(step(100, first=10.0)).read_per_s == 0.0
    assert after(step(1000, first=10.0), step(1010, cached=1000, first=1.0)).read_per_s == 100.0


def test_the_time_that_the_next_prompt_takes_is_foretold():
    assert after(step(1000, first=10.0)).started(1600).reading_s == 6.0
    assert Pace().started(1600).reading_s == 0.0


def test_what_is_read_again_is_counted_and_told_when_it_is_much():
    kept = after(step(9000, cached=10), step(9100, cached=9000))
    assert (kept.reread, kept.why_slow()) == (0, "")
    lost = after(step(9000, cached=10), step(9100, cached=0))
    assert (lost.reread, lost.reread_total) == (9000, 9000)
    assert "9,000 tokens were read again" in lost.why_slow()


def test_a_server_that_says_nothing_of_its_cache_is_not_accused():
    assert after(step(9000), step(9100)).why_slow() == ""


def test_a_cut_conversation_is_read_anew_and_that_is_no_loss():
    pace = after(step(9000, cached=100)).compacted()
    assert pace.started(3000).fresh == 3000
    assert pace.started(3000).finished(step(3000, cached=50)).reread == 0
