"""When a schedule falls due: against cronsim and the time zone database, and across the jumps of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.amount import examples, mostly_long

from lmagent.schedule.times import FORMS, parse_schedule

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/St_Johns")


def stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def texts(schedule, after: str, count: int) -> list[str]:
    zone = ZoneInfo(schedule.zone)
    times = schedule.between(stamp(after), 1 << 40, count)
    return [datetime.fromtimestamp(time, zone).isoformat() for time in times]


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("every 30s", "UTC", ["2026-03-01T00:00:30+00:00", "2026-03-01T00:01:00+00:00"]),
        ("EVERY 5 m", "UTC", ["2026-03-01T00:05:00+00:00", "2026-03-01T00:10:00+00:00"]),
        ("every 2h", "UTC", ["2026-03-01T02:00:00+00:00", "2026-03-01T04:00:00+00:00"]),
        ("every 1d", "UTC", ["2026-03-02T00:00:00+00:00", "2026-03-03T00:00:00+00:00"]),
        ("daily 02:30", "Europe/Berlin", ["2026-03-01T02:30:00+01:00", "2026-03-02T02:30:00+01:00"]),
        ("daily 9:05", "UTC", ["2026-03-01T09:05:00+00:00", "2026-03-02T09:05:00+00:00"]),
        ("hourly :15", "Asia/Kolkata", ["2026-03-01T06:15:00+05:30", "2026-03-01T07:15:00+05:30"]),
        ("0 3 * * MON-FRI", "UTC", ["2026-03-02T03:00:00+00:00", "2026-03-03T03:00:00+00:00"]),
        ("*/20 8 1 mar *", "UTC", ["2026-03-01T08:00:00+00:00", "2026-03-01T08:20:00+00:00"]),
    ],
)
def test_a_schedule_falls_due(text, zone, expected):
    assert texts(parse_schedule(text, zone), "2026-03-01T00:00:00+00:00", 2) == expected


def test_a_daily_time_that_the_clocks_skip_runs_once_at_the_next_time_there_is():
    schedule = parse_schedule("daily 02:30", "Europe/Berlin")
    assert texts(schedule, "2026-03-28T12:00:00+00:00", 3) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
        "2026-03-31T02:30:00+02:00",
    ]


def test_hours_that_are_stepped_over_are_not_passed_over_where_the_clocks_go_back_by_half_an_hour():
    schedule = parse_schedule("0 */2 * * *", "Australia/Lord_Howe")
    assert texts(schedule, "2026-04-04T12:30:00+00:00", 3) == [
        "2026-04-05T00:00:00+11:00",
        "2026-04-05T02:00:00+10:30",
        "2026-04-05T04:00:00+10:30",
    ]


def test_a_day_that_a_zone_skips_is_made_up_for_as_soon_as_there_is_a_time_again():
    schedule = parse_schedule("daily 09:00", "Pacific/Apia")
    for after in ("2011-12-29T20:00:00+00:00", "2011-12-30T09:59:59+00:00"):
        assert texts(schedule, after, 2) == ["2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00"]


def test_a_daily_time_that_comes_twice_runs_once():
    schedule = parse_schedule("daily 02:30", "Europe/Berlin")
    assert texts(schedule, "2026-10-24T12:00:00+00:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


@pytest.mark.parametrize("zone", mostly_long(ZONES, kept=2))
def test_what_is_due_does_not_depend_on_where_one_begins_to_look(zone):
    """Around every jump of the year, from every minute."""
    for text in ("daily 02:30", "daily 01:30", "hourly :30", "0,30 1-3 * * *", "daily 00:00"):
        schedule = parse_schedule(text, zone)
        for day in ("2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01"):
            begin = stamp(f"{day}T00:00:00+00:00") - 86400
            every = schedule.between(begin, begin + 4 * 86400, 10_000)
            assert every == sorted(set(every))
            for minute in range(0, 3 * 24 * 60, 7):
                after = begin + minute * 60
                assert schedule.next(after) == next(time for time in every if time > after), (text, day, minute)


@pytest.mark.parametrize(
    "text",
    [
        *("", "every", "every m", "every 0s", "every 5", "every 5w", "every 5 minutes please", "every 400d", "daily"),
        *("daily 25:00", "daily 09:60", "hourly 15", "hourly :60", "weekly", "@daily", "at noon", "tomorrow"),
        *("* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "*/0 * * * *", "0 0 30 2 *", "0 0 31 4 *"),
        *("a b c d e", "1-0 * * * *", "0 3 * * MO", "0 3 * * 1-", "５ 3 * * *", "0 0 * * 1#6"),
    ],
)
def test_a_text_that_is_none_of_the_forms_is_an_error_that_names_them(text):
    with pytest.raises(ValueError, match=r".") as refusal:
        parse_schedule(text)
    said = str(refusal.value)
    assert FORMS in said or "never due" in said or "from 1 second to a year" in said


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "Europe", "/etc/localtime"])
def test_a_time_zone_that_is_not_known_is_an_error(zone):
    with pytest.raises(ValueError, match="time zone"):
        parse_schedule("daily 09:00", zone)


def test_startup_is_never_due_by_the_clock():
    assert parse_schedule(" Startup ").next(0.0) is None


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    spans = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.integers(1, high).map(lambda step: f"*/{step}")
    lists = st.lists(number, min_size=1, max_size=4).map(lambda items: ",".join(map(str, items)))
    return st.one_of(st.just("*"), number.map(str), spans, steps, lists)


LINES = st.tuples(field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6)).map(" ".join)
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)).map(lambda time: time.replace(tzinfo=UTC))


@settings(max_examples=examples(200), deadline=None)
@given(LINES, MOMENTS)
def test_every_cron_line_falls_due_as_cronsim_says(line, moment):
    schedule = parse_schedule(line)
    sim = CronSim(line, moment.replace(microsecond=0))
    expected = [int(next(sim).timestamp()) for _ in range(5)]
    if moment.microsecond == 0 or expected[0] > moment.timestamp():
        assert schedule.between(moment.timestamp(), 1 << 40, 5) == expected


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 23), st.integers(0, 59), st.sampled_from(ZONES), MOMENTS)
def test_a_daily_job_runs_once_on_every_local_day(hour, minute, zone, moment):
    schedule = parse_schedule(f"daily {hour:02}:{minute:02}", zone)
    times = [datetime.fromtimestamp(time, ZoneInfo(zone)) for time in schedule.between(moment.timestamp(), 1 << 40, 8)]
    days = [time.date() for time in times]
    assert days == [days[0] + timedelta(days=number) for number in range(8)]
    for time in times:
        wanted = time.replace(hour=hour, minute=minute, fold=0)
        exists = wanted.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None) == wanted.replace(tzinfo=None)
        assert time == wanted if exists else time > wanted.astimezone(UTC) - timedelta(hours=2)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.one_of(LINES, st.sampled_from(["every 7s", "every 90m", "every 3d"])), st.sampled_from(ZONES), MOMENTS, st.data()
)
def test_the_latest_times_are_the_end_of_all_of_them(text, zone, moment, data):
    schedule = parse_schedule(text, zone)
    after = moment.timestamp()
    until = after + data.draw(st.floats(0, 20 * 86400 if "every" not in text else 5000))
    every = schedule.between(after, until, 100_000)
    most = data.draw(st.integers(1, 101))
    assert schedule.latest(after, until, most) == every[-most:]
