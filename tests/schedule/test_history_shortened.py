"""The history of the jobs is made shorter when it is large: the same is known, and who is killed loses nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.amount import examples, mostly_long

from lmagent.schedule import ledger as ledger_module
from lmagent.schedule.ledger import HISTORY, LARGE, JobHistory, Ledger, LedgerEntry

NOW = 1_800_000_000

ENTRIES = st.builds(
    LedgerEntry,
    ts=st.integers(0, 60).map(float),
    job=st.sampled_from(["a", "b"]),
    what=st.sampled_from(["on", "off", "claimed", "ran", "missed", "delivering", "delivered"]),
    at=st.integers(0, 9),
    until=st.integers(0, 20),
    count=st.integers(0, 3),
    schedule=st.sampled_from(["", "every 1m"]),
    session=st.sampled_from(["", "s1"]),
    outcome=st.sampled_from(["", "done"]),
    by=st.sampled_from(["", "user"]),
)


def folded(entries) -> dict[str, JobHistory]:
    jobs = dict[str, JobHistory]()
    for entry in entries:
        jobs.setdefault(entry.job, JobHistory()).apply(entry)
    return jobs


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(ENTRIES, min_size=20, max_size=60))
def test_the_shorter_history_says_the_same(entries):
    jobs = folded(entries)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module, "LARGE", 100)
        path = Path(folder)
        Ledger(path, lambda: 1.0).append(*entries)
        one = Ledger(path, lambda: 1.0)
        one.note("c", "ran", 0)
        fresh = Ledger(path, lambda: 1.0)
        fresh.read()
        assert {job: fresh.history(job) for job in jobs} == jobs
        assert [list(fresh.history(job).runs) for job in jobs] == [list(history.runs) for history in jobs.values()]


def a_large_one(folder: Path) -> Ledger:
    """A history of a job a minute, of weeks, just below the size at which it is made shorter."""
    ledger = Ledger(folder, lambda: float(NOW))
    lines, size, at = [msgspec.json.encode(LedgerEntry(0.0, "job", "on", schedule="every 1m"))], 0, 0
    while size < LARGE - 1000:
        at += 60
        for entry in (
            LedgerEntry(float(at), "job", "claimed", at, session=f"20270101_000000_{at:06x}"),
            LedgerEntry(at + 9.0, "job", "ran", at, session=f"20270101_000000_{at:06x}", outcome="done"),
        ):
            lines.append(msgspec.json.encode(entry))
            size += len(lines[-1]) + 1
    lines.insert(3, b'{"what":"of a later version"}')
    folder.mkdir(exist_ok=True)
    ledger.path.write_bytes(b"\n".join(lines) + b"\n")
    ledger.read()
    return ledger


def told(ledger: Ledger) -> tuple[object, ...]:
    history = ledger.history("job")
    return history.on, history.schedule, history.horizon, list(history.runs.items())


def append_until_shorter(ledger: Ledger) -> None:
    at = int(ledger.history("job").horizon)
    before = ledger.path.stat().st_size
    while ledger.path.stat().st_size >= before:
        at += 60
        before = ledger.path.stat().st_size
        ledger.append(LedgerEntry(float(at), "job", "claimed", at))
        ledger.note("job", "ran", at, outcome="done")


def test_a_large_history_is_made_shorter_and_everybody_knows_the_same(tmp_path):
    one, other = a_large_one(tmp_path / "h"), Ledger(tmp_path / "h", lambda: float(NOW))
    other.read()
    append_until_shorter(one)
    assert one.path.stat().st_size < LARGE // 4
    other.read()
    fresh = Ledger(tmp_path / "h", lambda: float(NOW))
    fresh.read()
    assert told(one) == told(other) == told(fresh)
    assert len(one.history("job").runs) == HISTORY
    other.note("job", "delivered", max(other.history("job").runs), outcome="ok")
    one.read()
    assert told(one) == told(other)


@pytest.mark.long
def test_a_year_of_a_job_a_minute_stays_within_its_bound(tmp_path):
    ledger = a_large_one(tmp_path / "h")
    largest = 0
    for _ in range(3):
        append_until_shorter(ledger)
        filler = (ledger.path.read_bytes().splitlines(keepends=True)[-200:]) * 1000
        with ledger.path.open("ab") as file:
            file.write(b"".join(filler)[: LARGE - ledger.path.stat().st_size].rpartition(b"\n")[0] + b"\n")
        ledger.read()
        largest = max(largest, ledger.path.stat().st_size)
    assert largest < LARGE + 1000


def test_a_file_with_the_same_number_is_told_from_the_one_before(tmp_path):
    ledger = Ledger(tmp_path, lambda: float(NOW))
    ledger.append(LedgerEntry(1.0, "old", "on", schedule="startup"))
    ledger.path.write_bytes(b"\n" * 70 + msgspec.json.encode(LedgerEntry(1.0, "new", "on", schedule="startup")) + b"\n")
    ledger.read()
    assert ledger.jobs() == ["new"]


WRITER = """
import sys
from pathlib import Path
from lmagent.schedule.ledger import LedgerEntry, Ledger

ledger = Ledger(Path(sys.argv[1]), lambda: 1.0)
for at in range(30):
    ledger.append(LedgerEntry(1.0, sys.argv[2], "claimed", at))
    ledger.note(sys.argv[2], "ran", at, outcome="done")
"""


def test_what_others_write_while_it_is_made_shorter_is_not_lost(tmp_path):
    ledger = a_large_one(tmp_path / "h")
    with ledger.path.open("ab") as file:
        file.write(b"\n" * (LARGE - 500 - ledger.path.stat().st_size))
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "h"), name]) for name in ("p", "q", "r")]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    ledger.read()
    assert ledger.path.stat().st_size < LARGE // 2
    for name in ("p", "q", "r"):
        assert [run.stage for run in ledger.history(name).runs.values()] == ["ran"] * 30


VICTIM = Path(__file__).with_name("history_victim.py")


@pytest.mark.parametrize("half", mostly_long(["half", "before"]))
def test_who_is_killed_at_any_step_loses_nothing_and_repeats_nothing(tmp_path, half):
    home = tmp_path / "h"
    whole = a_large_one(home)
    with whole.path.open("ab") as file:
        file.write(b"\n" * (LARGE + 1 - whole.path.stat().st_size))
    content = whole.path.read_bytes()
    before, at = list(whole.history("job").runs.values())[1:], int(whole.history("job").horizon) + 60
    shortened, step = 0, 0
    while True:
        step += 1
        for old in home.iterdir():
            old.unlink()
        whole.path.write_bytes(content)
        done = subprocess.run([sys.executable, str(VICTIM), str(home), str(at), str(step), half], check=False)
        fresh = Ledger(home, lambda: 1.0)
        fresh.read()
        history = fresh.history("job")
        runs = list(history.runs.values())
        new = [run for run in runs if run.at == at]
        assert [run for run in runs if run.at != at][-len(before) :] == before
        assert (history.on, history.schedule) == (True, "every 1m")
        assert history.horizon == (at if new else at - 60), "decided exactly where it is written down"
        shortened += fresh.path.stat().st_size < LARGE // 2
        if done.returncode != -signal.SIGKILL:
            break
        fresh.append(LedgerEntry(float(at), "job", "claimed", at, session="new"))  # the next one goes on, and shortens
        fresh.note("job", "ran", at, outcome="done")
        assert fresh.history("job").runs[at].stage == "ran"
        assert fresh.path.stat().st_size < LARGE // 2
    assert done.returncode == 0
    assert [run.stage for run in new] == ["ran"]
    assert shortened >= 3
    assert step > 12
