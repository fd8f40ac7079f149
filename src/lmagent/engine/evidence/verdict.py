"""Verdict: whether what was changed is verified, in one line. Rather a good run too few than a bad one too many."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.errors import StoreError
from lmagent.core.events import FilesChanged
from lmagent.core.plurals import plural
from lmagent.core.work import Proof
from lmagent.engine.evidence import disk
from lmagent.engine.evidence.places import NAMED, is_guard, is_leaving, named
from lmagent.engine.evidence.project import is_code, own_checks
from lmagent.engine.evidence.record import Evidence
from lmagent.engine.evidence.results import Result, Seen, Setting, logs, results_of, unseen
from lmagent.engine.evidence.table import CODE

if TYPE_CHECKING:
    from lmagent.engine.session import Session


class Verdict(Struct, frozen=True):
    """What can be said of the work.

    Attributes:
        proof: verified or not; empty where there is nothing to prove.
        reason: what that rests on.
        passed: whether a check ran after the last change and passed.
    """

    proof: Proof = ""
    reason: str = ""
    passed: bool = False


def setting_of(session: Session) -> Setting:
    """What a judgement on this session depends on besides its events."""
    wiring, state = session.wiring, session.state
    return Setting(
        workspace=str(wiring.workspace),
        own=session.agent.checks,
        kept=wiring.snapshots is not None,
        child=state.work.parent is not None,
        paths_of=partial(_paths_of, session),
        moved=partial(disk.moved, wiring.workspace),
        recipe=partial(disk.recipe, wiring.workspace),
        demanded=lambda: session.agent.proven or bool(session.agent.checks or own_checks(wiring.workspace)),
    )


def _paths_of(session: Session, event: FilesChanged) -> Sequence[str] | None:
    from lmagent.engine.undo import changes_of

    try:
        return [change.path for change in changes_of(session, event)]
    except (StoreError, msgspec.DecodeError):
        return None


def judge(evidence: Evidence, setting: Setting) -> Verdict:
    """The verdict on what was changed since the last one that was good."""
    seen = _seen(evidence, setting)
    last = max([seen.unnamed, seen.unseen, *seen.changed.values()])
    if not last:
        return Verdict()
    results = results_of(evidence, setting, seen)
    news = last > evidence.judged or any(result.run.seq > evidence.judged for result in results)
    if not news or not (results or is_code(seen.changed) or setting.demanded()):
        return Verdict()
    verdict = _weigh(seen, results)
    plain = "".join(char if char.isprintable() else "�" for char in verdict.reason)  # a path may hold a line's end
    return replace(verdict, reason=plain)


def _seen(evidence: Evidence, setting: Setting) -> Seen:
    printed = logs(evidence)
    changed = {path: seq for path, seq in evidence.touched.items() if path not in printed}
    by, guards, unnamed = dict(evidence.by), dict[str, int](), 0
    for event in evidence.standing.values():
        paths = setting.paths_of(event) if event.blob else [change.path for change in event.changes]
        if paths is None:
            unnamed = event.seq
            continue
        for path in paths:
            if is_leaving(path) or path in printed:
                continue
            if is_guard(path):
                guards.setdefault(path, event.seq)
            if event.blob and event.seq > max(evidence.verified, changed.get(path, 0)):
                changed[path], by[path] = event.seq, event.call_id
    guards |= {path: seq for path, seq in changed.items() if path not in guards and is_guard(path)}
    return Seen(changed, by, guards, unnamed, 0 if setting.kept else unseen(evidence, setting), setting.moved(evidence))


def _weigh(seen: Seen, results: Sequence[Result]) -> Verdict:
    latest = {(result.name, bool(result.fault)): result for result in results}  # the last run of each counts
    after = [result for result in latest.values() if _is_after(result, seen)]
    failed = [result for result in after if result.failed]
    passed = [result for result in after if not result.failed and not result.fault]
    if passed:
        best = [result for result in passed if not result.buts] or passed[:1]
        names = _joined([result.name for result in best])
        buts = [result.failure() for result in failed]
        buts += best[0].buts or _untested(seen, passed)
        if not buts:
            return Verdict("verified", f"{names} passed after the last change", passed=True)
        return Verdict("partly verified", f"{names} passed after the last change, but {'; '.join(buts[:NAMED])}", True)
    if failed:
        return Verdict("unverified", failed[-1].failure())
    faulty = [result for result in after if result.fault]
    if faulty:
        return Verdict("unverified", f"{_changes(seen)}, and {faulty[-1].name} proves nothing: {faulty[-1].fault}")
    early = [result for result in latest.values() if not result.failed and not result.fault]
    if early:
        return Verdict("unverified", f"{early[-1].name} passed, but {_later(seen, early[-1])} after it")
    several = len(seen.changed) != 1 or seen.unnamed
    return Verdict("unverified", f"{_changes(seen)}, nothing checked {'them' if several else 'it'}")


def _is_after(result: Result, seen: Seen) -> bool:
    """Whether nothing was changed since the run began, save by the run itself."""
    others = [seq for path, seq in seen.changed.items() if seen.by.get(path) != result.run.call]
    if any(at > result.run.at for at in seen.moved.values()):
        return False
    return result.run.seq > max([seen.unseen, seen.unnamed, *others], default=0)


def _untested(seen: Seen, passed: Sequence[Result]) -> list[str]:
    """Code that none of the checks can have run, since it is in another language."""
    whole = [result.languages for result in passed if not result.buts]
    if not all(whole):
        return []
    run = tuple(suffix for languages in whole for suffix in languages)
    left = [path for path in seen.changed if path.endswith(CODE) and not path.endswith(run)]
    return [f"it does not run {named(left)}"] if left else []


def _later(seen: Seen, result: Result) -> str:
    later = [
        path for path, seq in seen.changed.items() if seq > result.run.seq and seen.by.get(path) != result.run.call
    ]
    later += [path for path, at in seen.moved.items() if at > result.run.at and path not in later]
    if not later:
        return "something was changed"
    return f"{named(later)} {'was' if len(later) == 1 else 'were'} changed"


def _changes(seen: Seen) -> str:
    changed = seen.changed
    if seen.unnamed:
        return "many files changed"
    if not changed:
        return "commands ran whose changes are not recorded"
    return f"{next(iter(changed)) if len(changed) == 1 else plural(len(changed), 'file')} changed"


def _joined(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
