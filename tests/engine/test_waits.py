"""What `WAIT:` means, and what a turn makes of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import bench, say

from lmagent.engine.endings import FARTHEST, Moment, read_wait

NOW = datetime(2026, 2, 1, 12, tzinfo=UTC).timestamp()


def until(text: str, now: float = NOW) -> str:
    found = read_wait(text, now)
    assert isinstance(found, Moment), found
    return datetime.fromtimestamp(found.until, UTC).isoformat().removesuffix("+00:00")


@pytest.fixture
def _berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-01T09:00:00Z: the market opens", "2026-03-01T09:00:00"),
        ("2026-03-01 09:00 UTC: the market opens", "2026-03-01T09:00:00"),
        ("2026-03-01T09:00:00+02:00: x", "2026-03-01T07:00:00"),
        ("2026-03-01T09:00-0530: x", "2026-03-01T14:30:00"),
        ("2026-03-01T09:00+02: x", "2026-03-01T07:00:00"),
        ("2026-03-01T09:00:00[Europe/Berlin]: x", "2026-03-01T08:00:00"),
        ("2026-03-01T09:00 Europe/Berlin - x", "2026-03-01T08:00:00"),
        ("2026-03-01T09:00:00+05:00[Europe/Berlin]: the offset counts", "2026-03-01T04:00:00"),
        ("until 2026-03-01T09:00:00.5Z", "2026-03-01T09:00:00.500000"),
        ("+30m: x", "2026-02-01T12:30:00"),
        ("in 2 hours: x", "2026-02-01T14:00:00"),
        ("90s", "2026-02-01T12:01:30"),
        ("for 3 days, then on", "2026-02-04T12:00:00"),
    ],
)
def test_a_time_is_understood(text, moment):
    assert until(text) == moment


@pytest.mark.usefixtures("_berlin")
@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-01T09:00:00: local", "2026-03-01T08:00:00"),
        ("2026-03-29T02:30:00: skipped by the clocks, so it moves forward", "2026-03-29T01:30:00"),
        ("2026-10-25T02:30:00: comes twice, so it is the first", "2026-10-25T00:30:00"),
        ("2026-03-08T02:30:00[America/New_York]: skipped there", "2026-03-08T07:30:00"),
        ("2026-11-01T01:30:00[America/New_York]: twice there", "2026-11-01T05:30:00"),
    ],
)
def test_a_time_without_an_offset_is_of_its_time_zone(text, moment):
    assert until(text) == moment


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2099-01-01T00:00:00Z: x", "more than a year"),
        ("in 400 days", "more than a year"),
        ("2026-02-30T09:00:00Z: x", "is no time"),
        ("2026-03-01T25:00: x", "is no time"),
        ("tomorrow morning: x", "is no time"),
        ("at noon", "is no time"),
        ("2026-03-01T09:00[Mars/Olympus]: x", "is no time that is known here"),
        ("2026-03-01T09:00[../etc/passwd]: x", "is no time"),
        ("2026-03-01T09:00[]: x", "is no time"),
        ("2026-03-01T09:00 CET: x", "is no time"),
        ("2026-03-01T09:00+99:00: x", "is no time"),
        ("99999999999 hours", "is no time"),
    ],
)
def test_what_is_no_time_is_refused_with_the_reason(text, why):
    found = read_wait(text, NOW)
    assert isinstance(found, str)
    assert why in found


def test_the_reason_is_what_stands_behind_the_time():
    assert read_wait("2026-03-01T09:00:00Z: the market: it opens**", NOW).reason == "the market: it opens"
    assert read_wait("+5m", NOW).reason == "no reason given"


@given(st.text(max_size=60), st.floats(0, 4e9))
def test_no_text_breaks_the_reading(text, now):
    found = read_wait(text, now)
    assert isinstance(found, str) or found.until <= now + FARTHEST


@given(st.datetimes(datetime(2026, 2, 1, 13), datetime(2027, 1, 1)), st.integers(-720, 720))
def test_every_time_with_an_offset_is_that_moment(moment, minutes):
    sign = "-" if minutes < 0 else "+"
    offset = f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    found = read_wait(f"{moment.isoformat()}{offset}: x", NOW)
    assert isinstance(found, Moment)
    assert found.until == datetime.fromisoformat(f"{moment.isoformat()}{offset}").timestamp()


def test_a_wait_ends_the_turn_with_its_time():
    async def check():
        made = await bench(say("WAIT: in 1 hour: the build runs"))
        before = time.time()
        finished = await made.submit()
        assert finished.outcome == "waiting"
        assert before + 3600 <= finished.until <= time.time() + 3600
        assert finished.reason.endswith(": the build runs")
        assert made.session.state.wait == finished
        await made.submit("never mind")
        assert made.session.state.wait is None

    anyio.run(check)


def test_a_time_that_has_passed_is_told_and_the_model_goes_on():
    async def check():
        made = await bench(say("WAIT: 2020-01-01T00:00:00Z: the release"), say("It is out: version 2."))
        finished = await made.submit()
        assert (finished.outcome, finished.answer, finished.steps) == ("done", "It is out: version 2.", 2)
        assert "that time has passed" in made.model.requests[-1].messages[-1].text

    anyio.run(check)


@pytest.mark.parametrize("text", ["WAIT: 2099-01-01T00:00Z: x", "WAIT: tomorrow: x", "WAIT: 2020-01-01T00:00Z: x"])
def test_a_wait_that_cannot_be_is_refused_twice_and_then_ends_honestly(text):
    async def check():
        made = await bench(*[say(text)] * 5)
        finished = await made.submit()
        assert (finished.outcome, finished.cause, finished.steps, finished.until) == ("error", "wait", 3, 0)

    anyio.run(check)
