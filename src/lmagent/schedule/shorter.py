"""Shorter: a short list of facts that replaces all facts of a ledger so far."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from lmagent.schedule.entries import CronRun, JobHistory, LedgerEntry
from lmagent.store.files import replace_whole


def facts_of(jobs: Mapping[str, JobHistory]) -> list[LedgerEntry] | None:
    """Return entries with the same meaning; None if that is uncertain, and nothing may be left out."""
    facts = [entry for job, history in jobs.items() for entry in _facts(job, history)]
    again = dict[str, JobHistory]()
    for entry in facts:
        again.setdefault(entry.job, JobHistory()).apply(entry)
    known = {job: history for job, history in jobs.items() if history != JobHistory()}
    return facts if again == known else None


def _facts(job: str, history: JobHistory) -> Iterator[LedgerEntry]:
    if history == JobHistory():
        return
    ts = history.horizon
    for run in history.runs.values():
        yield from _run(job, run, ts)
    # after the runs: it says up to where everything is decided
    yield LedgerEntry(ts, job, "on", schedule=history.schedule)
    if not history.on:
        yield LedgerEntry(ts, job, "off")


def _run(job: str, run: CronRun, ts: float) -> Iterator[LedgerEntry]:
    if run.stage == "missed":
        yield LedgerEntry(ts, job, "missed", run.at, run.until, run.count)
        return
    yield LedgerEntry(ts, job, "claimed", run.at, session=run.session, by=run.by)
    if run.stage == "claimed":
        return
    yield LedgerEntry(ts, job, "ran", run.at, session=run.session, outcome=run.outcome)
    if run.stage != "ran":
        yield LedgerEntry(ts, job, run.stage, run.at, outcome=run.delivery)


def replace(path: Path, facts: list[LedgerEntry], unread: list[bytes]) -> None:
    """Replace a ledger by one with these facts; at every moment one of the two is there, whole.

    After an OSError the ledger is unchanged.
    """
    lines = [msgspec.json.encode(entry) + b"\n" for entry in facts] + unread
    # The new beginning is one that no ledger had before: a system may reuse a file's number.
    lines[0] = b'{"of":"' + os.urandom(12).hex().encode() + b'",' + lines[0][1:]
    replace_whole(path, path.with_suffix(".new"), b"".join(lines))
