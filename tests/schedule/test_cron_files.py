"""cron.json: what is right runs, what is wrong is named with its line, and changes keep the rest."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lmagent.core.errors import ConfigError
from lmagent.schedule.crontab import cron_list, list_text
from lmagent.schedule.jobs import add_job, find_job, read_jobs, remove_job, set_enabled
from lmagent.schedule.times import local_zone

SEED = """[
  {"id": "report", "name": "Report", "schedule": "every 2h", "prompt": "Write the report.",
   "session_id": "cron_report", "enabled": true, "last_run": null, "run_count": 3},
  {"id": "off", "name": "", "schedule": "daily 09:00", "prompt": "x", "session_id": null, "enabled": false}
]
"""


def test_the_file_of_an_earlier_agent_is_read_as_it_is(tmp_path):
    (tmp_path / "cron.json").write_text(SEED)
    found = read_jobs(tmp_path)
    assert not found.problems
    assert [(job.id, job.enabled, job.schedule.zone, job.line) for job in found.jobs.values()] == [
        ("report", True, local_zone(), 2),
        ("off", False, local_zone(), 4),
    ]
    assert found.jobs["report"].session_id == "cron_report"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            '{"id": "a", "schedule": "evry 5m", "prompt": "x"}',
            "job 'a': schedule: 'evry 5m' is not a valid schedule; known are: every",
        ),
        (
            '{"id": "a", "schedule": "61 * * * *", "prompt": "x"}',
            "job 'a': schedule: '61 * * * *' is no cron line: bad minute",
        ),
        (
            '{"id": "a", "schedule": "daily 09:00", "timezone": "Berlin", "prompt": "x"}',
            "job 'a': timezone: the time zone",
        ),
        ('{"id": "a", "prompt": "x"}', "job 'a': schedule: is missing"),
        ('{"schedule": "every 5m", "prompt": "x"}', "id: is missing"),
        ('{"id": "a", "schedule": "every 5m"}', "job 'a': prompt: is missing"),
        ('{"id": "a/b", "schedule": "every 5m", "prompt": "x"}', "id: up to 64 letters"),
        ('{"id": "a", "schedule": "every 5m", "prompt": 7}', "prompt: must be a text"),
        ('{"id": "a", "schedule": "every 5m", "prompt": "x", "enabled": "no"}', "enabled: must be true or false"),
        ('{"id": "a", "schedule": "every 5m", "prompt": "x", "catch_up": "some"}', "'some' is not one of once"),
        ('{"id": "a", "schedule": "every 5m", "prompt": "x", "catchup": "all"}', "'catchup' is no field of a job"),
        (
            '{"id": "a", "schedule": "every 5m", "prompt": "x", "webhook": "example.org"}',
            "webhook: 'example.org' is no",
        ),
        ('{"id": "a", "schedule": "every 5m", "prompt": "x", "session_id": "../x"}', "session_id: '../x' cannot"),
        ("7", "a job is an object"),
    ],
)
def test_a_bad_job_is_named_with_its_line_and_stops_no_other(tmp_path, row, said):
    good = '{"id": "good", "schedule": "every 5m", "prompt": "x"}'
    (tmp_path / "cron.json").write_text(f"[\n{good},\n\n{row}\n]")
    found = read_jobs(tmp_path)
    assert list(found.jobs) == ["good"]
    (problem,) = found.problems
    assert problem.startswith("cron.json line 4: ")
    assert said in problem


def test_two_jobs_with_one_id_are_an_error_that_names_both(tmp_path):
    (tmp_path / ".lmagent").mkdir()
    row = {"id": "a", "schedule": "every 5m", "prompt": "x"}
    (tmp_path / "cron.json").write_text(json.dumps([row]))
    (tmp_path / ".lmagent" / "cron.json").write_text(json.dumps([row], indent=1))
    found = read_jobs(tmp_path)
    assert list(found.jobs) == ["a"]
    assert found.problems == (".lmagent/cron.json line 2: job 'a': there is a job 'a' already: cron.json line 1",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[\n{"id": "a",}\n]', "cron.json line 2: this is no JSON"),
        ('{"id": "a"}', "must be a list of jobs"),
        ("[" * 100_000, "this is no JSON"),
        ("null", "must be a list"),
    ],
)
def test_a_file_that_is_no_list_of_jobs_is_named_with_its_line(tmp_path, text, said):
    (tmp_path / ".lmagent").mkdir()
    (tmp_path / "cron.json").write_text(text)
    found = read_jobs(tmp_path)
    assert not found.jobs
    assert said in found.problems[0]
    with pytest.raises(ConfigError):
        add_job(tmp_path, {"id": "b", "schedule": "every 5m", "prompt": "x"})
    assert (tmp_path / "cron.json").read_text() == text


def test_a_file_that_is_no_text_is_a_problem_and_no_crash(tmp_path):
    (tmp_path / "cron.json").write_bytes(b"[\xff]")
    assert "is not UTF-8" in read_jobs(tmp_path).problems[0]


def test_no_file_is_no_jobs(tmp_path):
    assert read_jobs(tmp_path) == type(read_jobs(tmp_path))({}, ())


def test_a_job_is_added_switched_and_removed_and_the_rest_is_kept(tmp_path):
    (tmp_path / "cron.json").write_text(SEED)
    add_job(tmp_path, {"id": "new", "schedule": "0 3 * * *", "prompt": "Grüße", "timezone": "Europe/Berlin"})
    assert set_enabled(tmp_path, "off", True).enabled
    remove_job(tmp_path, "report")
    rows = json.loads((tmp_path / "cron.json").read_text())
    assert [row["id"] for row in rows] == ["off", "new"]
    assert rows[1] == {"id": "new", "schedule": "0 3 * * *", "prompt": "Grüße", "timezone": "Europe/Berlin"}
    with pytest.raises(ConfigError, match="there is no job 'report'"):
        find_job(tmp_path, "report")


def test_a_new_job_goes_to_our_own_folder_where_there_is_no_file(tmp_path):
    add_job(tmp_path, {"id": "new", "schedule": "startup", "prompt": "x"})
    assert json.loads((tmp_path / ".lmagent" / "cron.json").read_text())[0]["id"] == "new"


@pytest.mark.parametrize(
    "fields",
    [{"id": "new", "schedule": "sometimes", "prompt": "x"}, {"id": "off", "schedule": "startup", "prompt": "x"}],
)
def test_a_job_that_is_not_right_changes_nothing(tmp_path, fields):
    (tmp_path / "cron.json").write_text(SEED)
    with pytest.raises(ConfigError):
        add_job(tmp_path, fields)
    assert (tmp_path / "cron.json").read_text() == SEED


def test_nothing_is_written_through_a_link(tmp_path):
    target = tmp_path / "elsewhere.json"
    target.write_text(SEED)
    (tmp_path / "cron.json").symlink_to(target)
    with pytest.raises(ConfigError, match="is a link"):
        set_enabled(tmp_path, "off", True)
    assert target.read_text() == SEED


def test_jobs_that_are_added_at_one_time_are_all_there(tmp_path):
    fields = {"schedule": "every 5m", "prompt": "x"}
    with ThreadPoolExecutor(8) as people:
        list(people.map(lambda number: add_job(tmp_path, {"id": f"j{number}", **fields}), range(24)))
    assert len(read_jobs(tmp_path).jobs) == 24


def test_a_job_is_found_in_its_file_by_an_id_between_blanks(tmp_path):
    (tmp_path / "cron.json").write_text('[{"id": " n ", "schedule": "every 5m", "prompt": "x"}]')
    assert set_enabled(tmp_path, "n", False).enabled is False
    remove_job(tmp_path, "n")
    assert not read_jobs(tmp_path).jobs


def test_half_a_character_is_a_problem_of_its_job_and_of_no_other(tmp_path):
    rows = (
        r'[{"id": "s", "schedule": "every 5m", "prompt": "\ud800"}, {"id": "t", "schedule": "every 5m", "prompt": "ä"}]'
    )
    (tmp_path / "cron.json").write_text(rows)
    (problem,) = read_jobs(tmp_path).problems
    assert "cron.json line 1: job 's': prompt: contains an invalid character" in problem
    set_enabled(tmp_path, "t", False)
    assert json.loads((tmp_path / "cron.json").read_text()) == [
        json.loads(rows)[0],
        {**json.loads(rows)[1], "enabled": False},
    ]


def test_a_file_that_is_empty_may_be_about_to_be_written_and_takes_no_job_away(tmp_path):
    (tmp_path / "cron.json").write_text("")
    assert "cron.json is empty" in read_jobs(tmp_path).problems[0]
    add_job(tmp_path, {"id": "a", "schedule": "every 5m", "prompt": "x"})
    assert list(read_jobs(tmp_path).jobs) == ["a"]


def test_a_schedule_without_a_time_zone_is_in_the_time_of_this_machine_and_the_list_shows_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        (tmp_path / "cron.json").write_text('[{"id": "report", "schedule": "daily 02:30", "prompt": "x"}]')
        assert read_jobs(tmp_path).jobs["report"].schedule.zone == "America/New_York"
        (line,) = list_text(cron_list(tmp_path)).splitlines()
        assert "daily 02:30 America/New_York" in line
        assert re.search(r"next \S+ 02:30 E[SD]T", line)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_time_zone_that_the_system_names_wrongly_counts_as_utc(monkeypatch):
    monkeypatch.setenv("TZ", "No/Where")
    assert local_zone() == "UTC"
