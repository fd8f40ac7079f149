"""What is decided about a job, and what the ledger remembers of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.amount import examples

from lmagent.core.errors import StoreError
from lmagent.schedule import due as due_module
from lmagent.schedule.due import COUNTED, GRACE, next_due
from lmagent.schedule.jobs import CronJob
from lmagent.schedule.ledger import JobHistory, Ledger, LedgerEntry
from lmagent.schedule.times import parse_schedule

DAY = 86400


@dataclass(frozen=True)
class Decision:
    """The entries of a decision, and the times to run now."""

    entries: tuple[LedgerEntry, ...] = ()

    @property
    def runs(self) -> tuple[int, ...]:
        return tuple(entry.at for entry in self.entries if entry.what == "claimed")


def decide(job: CronJob, history: JobHistory, now: float) -> Decision:
    return Decision(tuple(due_module.decide(job, history, now)))


T0 = 20_000 * DAY
"""A midnight in UTC."""


def job(text="daily 02:30", **more) -> CronJob:
    return CronJob("nightly", parse_schedule(text), "do it", **more)


def known(*entries: LedgerEntry) -> JobHistory:
    history = JobHistory()
    for entry in entries:
        history.apply(entry)
    return history


def started(text="daily 02:30", at=T0) -> LedgerEntry:
    return LedgerEntry(at, "nightly", "on", schedule=f"{text} (UTC)")


def test_a_new_job_begins_to_count_now_and_makes_up_for_nothing():
    decision = decide(job(), JobHistory(), T0 + 12 * 3600)
    assert [(entry.what, entry.schedule) for entry in decision.entries] == [("on", "daily 02:30 (UTC)")]
    assert decide(job(), known(*decision.entries), T0 + 12 * 3600).runs == ()


def test_a_job_runs_when_it_is_due_and_only_once():
    history = known(started())
    due = T0 + 2.5 * 3600
    assert decide(job(), history, due - 1).runs == ()
    decision = decide(job(), history, due + 0.2)
    assert decision.runs == (int(due),)
    history = known(started(), *decision.entries, LedgerEntry(due, "nightly", "ran", int(due)))
    assert decide(job(), history, due + 1) == type(decision)()


def test_a_job_does_not_overlap_itself():
    history = known(started("every 1s"), LedgerEntry(T0, "nightly", "claimed", T0 + 1))
    assert decide(job("every 1s"), history, T0 + 50).runs == ()
    history.apply(LedgerEntry(T0, "nightly", "ran", T0 + 1))
    assert decide(job("every 1s"), history, T0 + 50).runs == (T0 + 50,)


@pytest.mark.parametrize(
    ("policy", "late", "runs", "missed"),
    [
        ("once", 3600, [9], (1, 8, 8)),
        ("skip", 3600, [], (1, 9, 9)),
        ("skip", GRACE - 1, [9], (1, 8, 8)),
        ("all", 3600, list(range(1, 10)), None),
    ],
)
def test_what_was_missed_is_made_up_for_by_the_policy_of_the_job(policy, late, runs, missed):
    now = T0 + 8 * DAY + 2.5 * 3600 + late
    decision = decide(job(catch_up=policy), known(started()), now)
    at = {int(T0 + number * DAY + 2.5 * 3600): number + 1 for number in range(9)}
    assert [at[run] for run in decision.runs] == runs
    ranges = [(at[entry.at], at[entry.until], entry.count) for entry in decision.entries if entry.what == "missed"]
    assert ranges == ([missed] if missed else [])
    assert decide(job(catch_up=policy), known(started(), *decision.entries), now).runs == ()


def test_a_job_that_missed_a_great_deal_costs_no_time_to_decide_on():
    decision = decide(job("* * * * *"), known(started("* * * * *")), T0 + 3000 * DAY)
    assert decision.runs == (T0 + 3000 * DAY,)
    assert decision.entries[0].count == COUNTED


def test_a_disabled_job_is_not_due_and_what_passed_meanwhile_is_not_made_up_for():
    off = decide(job(enabled=False), known(started()), T0 + 3 * DAY)
    assert [entry.what for entry in off.entries] == ["off"]
    history = known(started(), *off.entries)
    assert decide(job(enabled=False), history, T0 + 4 * DAY).entries == ()
    on = decide(job(), history, T0 + 5 * DAY)
    history = known(started(), *off.entries, *on.entries)
    assert decide(job(), history, T0 + 5 * DAY + 60).runs == ()
    assert next_due(job(), history, T0 + 5 * DAY + 60) == T0 + 5 * DAY + 9000


def test_a_job_whose_schedule_was_changed_begins_anew():
    decision = decide(job("daily 03:00"), known(started()), T0 + 12 * 3600)
    assert [entry.what for entry in decision.entries] == ["on"]


def test_a_clock_that_was_wrong_for_a_while_silences_no_job_and_repeats_none():
    ahead = T0 + 30 * DAY
    history = known(started(), *(decide(job(), known(started()), ahead).entries))
    ran = set(history.runs)
    for run in list(history.runs.values()):
        history.apply(LedgerEntry(ahead, "nightly", "ran", run.at))
    again = decide(job(), history, T0 + DAY)
    assert [entry.what for entry in again.entries] == ["on"]
    history.apply(again.entries[0])
    seen: list[int] = []
    for day in range(1, 40):
        decision = decide(job(), history, T0 + day * DAY + 9000)
        for entry in decision.entries:
            history.apply(entry)
        for at in decision.runs:
            history.apply(LedgerEntry(T0, "nightly", "ran", at))
        seen += decision.runs
    assert len(seen) == len(set(seen)) >= 38
    assert not ran & set(seen)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from(["every 7s", "every 90m", "daily 02:30", "*/10 * * * *", "0 3 * * MON"]),
    st.sampled_from(["once", "skip", "all"]),
    st.lists(st.floats(0.1, 4 * DAY), min_size=1, max_size=30),
)
def test_however_time_passes_no_time_is_decided_on_twice_and_none_is_forgotten(text, policy, steps):
    this = job(text, catch_up=policy)
    history = known(started(text))
    now, decided = float(T0), list[tuple[int, int]]()
    for step in steps:
        now += step
        decision = decide(this, history, now)
        for entry in decision.entries:
            history.apply(entry)
            decided.append((entry.at, entry.until or entry.at))
        for at in decision.runs:
            assert at <= now
            history.apply(LedgerEntry(now, "nightly", "ran", at))
    assert all(sooner[1] < later[0] for sooner, later in pairwise(decided)), "a time was decided on twice"
    every = this.schedule.between(T0, now, 1000)
    covered = [at for at in every if any(first <= at <= last for first, last in decided)]
    assert covered == every, "a time was forgotten"


# --- the ledger -------------------------------------------------------------------------------------------------------


def ledger_in(tmp_path) -> Ledger:
    return Ledger(tmp_path / ".lmagent", lambda: float(T0))


def test_what_is_written_down_is_known_to_all(tmp_path):
    one, other = ledger_in(tmp_path), ledger_in(tmp_path)
    with one.locked():
        one.append(started(), LedgerEntry(T0, "nightly", "claimed", T0 + 5, session="s1"))
    other.read()
    assert [run.at for run in other.history("nightly").unfinished] == [T0 + 5]
    other.note("nightly", "ran", T0 + 5, session="s1", outcome="done")
    one.read()
    assert one.history("nightly").unfinished == []
    assert one.history("nightly").runs[T0 + 5].outcome == "done"


def test_a_line_that_was_torn_by_a_kill_harms_no_other(tmp_path):
    ledger = ledger_in(tmp_path)
    ledger.append(started())
    with ledger.path.open("ab") as file:
        file.write(b'{"ts":1,"job":"nigh')
    ledger.append(LedgerEntry(T0, "nightly", "claimed", T0 + 5))
    fresh = ledger_in(tmp_path)
    fresh.read()
    assert fresh.history("nightly").busy


def test_a_ledger_that_was_deleted_is_begun_anew(tmp_path):
    ledger = ledger_in(tmp_path)
    ledger.append(started())
    ledger.path.unlink()
    ledger.read()
    assert not ledger.history("nightly").on


def test_a_link_in_the_place_of_the_ledger_is_refused(tmp_path):
    ledger = ledger_in(tmp_path)
    ledger.path.parent.mkdir()
    ledger.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        ledger.append(started())
    assert not (tmp_path / "elsewhere").exists()


CLAIMER = """
import sys, os, random, signal
from pathlib import Path
from lmagent.schedule.due import decide
from lmagent.schedule.jobs import CronJob
from lmagent.schedule.ledger import Ledger
from lmagent.schedule.times import parse_schedule
job = CronJob("nightly", parse_schedule("every 1s"), "x", catch_up="all")
now = float(sys.argv[2])
ledger = Ledger(Path(sys.argv[1]), lambda: now)
with ledger.locked():
    decision = decide(job, ledger.history("nightly"), now)
    if sys.argv[3] == "kill" and random.random() < 0.3:
        os.kill(os.getpid(), signal.SIGKILL)
    ledger.append(*decision)
    if sys.argv[3] == "kill" and random.random() < 0.3:
        os.kill(os.getpid(), signal.SIGKILL)
    runs = [entry.at for entry in decision if entry.what == "claimed"]
    for at in runs:
        ledger.note("nightly", "ran", at)
    print(*runs, flush=True)
"""


@pytest.mark.crash
def test_two_schedulers_that_decide_at_once_and_are_killed_claim_every_time_once(tmp_path):
    ledger = ledger_in(tmp_path)
    ledger.append(started("every 1s"))
    for round in range(1, 9):
        command = [
            sys.executable,
            "-c",
            CLAIMER,
            str(tmp_path / ".lmagent"),
            str(T0 + round),
            "kill" if round < 8 else "",
        ]
        pair = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
        codes = [process.wait(60) for process in pair]
        assert all(code in (0, -signal.SIGKILL) for code in codes)
        ledger.read()
        for run in ledger.history("nightly").unfinished:
            ledger.note("nightly", "ran", run.at)
    lines = [msgspec.json.decode(line, type=LedgerEntry) for line in ledger.path.read_bytes().splitlines()]
    claimed = [entry.at for entry in lines if entry.what == "claimed"]
    assert claimed == list(range(T0 + 1, T0 + 9))
    assert os.path.getsize(ledger.path)
