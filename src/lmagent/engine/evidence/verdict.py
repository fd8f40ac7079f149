"""Verdict: whether what was changed is verified, in one line. Rather a good run too few than a bad one too many."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.errors import StoreError
from lmagent.core.events import FilesChanged
from lmagent.core.work import Proof
from lmagent.engine.evidence import disk, line
from lmagent.engine.evidence.exports import deciding, unknown
from lmagent.engine.evidence.places import NAMED, is_guard, is_leaving, is_product, is_within, named
from lmagent.engine.evidence.record import Evidence, Run
from lmagent.engine.evidence.runners import Check, is_missing, mentions, ran_none, recognise
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


class Setting(Struct, frozen=True):
    """What a judgement depends on besides the events.

    Attributes:
        workspace: absolute path of the workspace.
        own: commands that a person calls checks.
        kept: whether what commands change is recorded.
        child: it is a sub-agent's session.
        paths_of: the paths of an event that are too many to stand in it; None where they are gone.
        moved: for paths that are not as they were recorded, when they were changed.
        recipe: what a target or script runs, in the words of the project's files.
    """

    workspace: str
    own: tuple[str, ...] = ()
    kept: bool = True
    child: bool = False
    paths_of: Callable[[FilesChanged], Sequence[str] | None] = lambda _: None
    moved: Callable[[Evidence], Mapping[str, float]] = lambda _: {}
    recipe: Callable[[Check], str] = lambda _: ""


class _Seen(Struct, frozen=True):
    """What was changed, those many paths included that do not stand in their event.

    Attributes:
        changed: since the last good verdict, with the `seq` of the last change.
        by: the call of that change.
        guards: tests, configuration and runners that were changed in the session, with the `seq` of the first change.
        unnamed: `seq` of the last change whose paths are gone; 0 for none.
        unseen: `seq` of the last command that may have changed something, where that is not recorded.
        moved: paths that somebody changed behind the record, and when.
    """

    changed: dict[str, int]
    by: dict[str, str]
    guards: dict[str, int]
    unnamed: int
    unseen: int
    moved: Mapping[str, float]


class _Result(Struct, frozen=True):
    """One check of one run: why it counts for less, or why it does not count at all.

    Attributes:
        name: of the check.
        run: its run.
        buts: why it counts for less.
        fault: why it does not count.
        failed: whether its line failed.
        languages: suffixes of the code that it can run.
        whole: the line, where more than the check stood in it.
    """

    name: str
    run: Run
    buts: tuple[str, ...] = ()
    fault: str = ""
    failed: bool = False
    languages: tuple[str, ...] = ()
    whole: str = ""

    def failure(self) -> str:
        """What failed: the line, where something else in it may have."""
        return f"{self.whole or self.name} failed (exit code {self.run.code})"


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
    results = _results(evidence, setting, seen)
    news = last > evidence.judged or any(result.run.seq > evidence.judged for result in results)
    if not news:
        return Verdict()
    verdict = _weigh(seen, results)
    plain = "".join(char if char.isprintable() else "�" for char in verdict.reason)  # a path may hold a line's end
    return replace(verdict, reason=plain)


def _seen(evidence: Evidence, setting: Setting) -> _Seen:
    changed, by, guards, unnamed = dict(evidence.touched), dict(evidence.by), dict[str, int](), 0
    for event in evidence.standing.values():
        paths = setting.paths_of(event) if event.blob else [change.path for change in event.changes]
        if paths is None:
            unnamed = event.seq
            continue
        for path in paths:
            if is_leaving(path):
                continue
            if is_guard(path):
                guards.setdefault(path, event.seq)
            if event.blob and event.seq > max(evidence.verified, changed.get(path, 0)):
                changed[path], by[path] = event.seq, event.call_id
    guards |= {path: seq for path, seq in changed.items() if path not in guards and is_guard(path)}
    return _Seen(
        changed, by, guards, unnamed, 0 if setting.kept else _unseen(evidence, setting), setting.moved(evidence)
    )


def _weigh(seen: _Seen, results: Sequence[_Result]) -> Verdict:
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
    plural = len(seen.changed) != 1 or seen.unnamed
    return Verdict("unverified", f"{_changes(seen)}, nothing checked {'them' if plural else 'it'}")


def _is_after(result: _Result, seen: _Seen) -> bool:
    """Whether nothing was changed since the run began, save by the run itself."""
    others = [seq for path, seq in seen.changed.items() if seen.by.get(path) != result.run.call]
    if any(at > result.run.at for at in seen.moved.values()):
        return False
    return result.run.seq > max([seen.unseen, seen.unnamed, *others], default=0)


def _results(evidence: Evidence, setting: Setting, seen: _Seen) -> list[_Result]:
    found = list[_Result]()
    for run in evidence.runs:
        if run.command and mentions(run.command, setting.own):
            found += _of_run(run, evidence, setting, seen)
    return found


def _of_run(run: Run, evidence: Evidence, setting: Setting, seen: _Seen) -> list[_Result]:
    text = " ".join(run.command.split())
    around = False
    if text in (" ".join(entry.split()) for entry in setting.own):
        checks: list[Check] = [Check(_short(text), run.folder)]
        read = line.Line(folder=run.ended)
    else:
        read = line.read(run.command, run.folder, setting.workspace)
        if read.fault:
            return [_Result(_short(text), run, fault=read.fault)] if _looks_like_one(run.command) else []
        judged = [recognise(ran, setting.own) for ran in read.ran]
        checks = [one for one in judged if isinstance(one, Check)]
        around = checks != [] and _is_wrapped(read, setting.own)
        if not checks:
            nothing = [one for one in judged if one is not None and not isinstance(one, Check)]
            hidden = not nothing and _looks_like_one(run.command)
            if hidden:
                return [_Result(_short(text), run, fault="its exit code is not that of a check")]
            return [_Result(one.name, run, fault=one.reason) for one in nothing]
    if run.code is None:
        return [_Result(check.name, run, fault="it did not come to its end") for check in checks]
    if run.code:
        missing = [check for check in checks if is_missing(check, run.code, run.output)]
        whole = _short(text) if len(read.all) > len(checks) else ""
        return [
            _Result(check.name, run, fault=f"it could not be started (exit code {run.code})")
            if check in missing
            else _Result(check.name, run, failed=True, whole=whole)
            for check in checks
        ]
    if read.folder != run.ended:
        return [_Result(check.name, run, fault="it ran in another folder than its words say") for check in checks]
    if fault := deciding(run.exports, setting.workspace):
        return [_Result(check.name, run, fault=fault) for check in checks]
    passed = [_passed(check, run, evidence, seen, setting) for check in checks]
    if not around:
        return passed
    but = "the same line may have changed something before it and taken that back"
    return [replace(one, buts=one.buts or (but,)) if not one.fault else one for one in passed]


def _is_wrapped(read: line.Line, own: Sequence[str]) -> bool:
    """Whether something stands both before and behind the checks of a line that may do and undo: no look sees that."""
    kinds = [isinstance(recognise(ran, own), Check) for ran in read.all]
    others = [not (kind or line.only_reads(ran)) for kind, ran in zip(kinds, read.all, strict=True)]
    return any(any(others[:at]) and any(others[at:]) for at, kind in enumerate(kinds) if kind)


def _passed(check: Check, run: Run, evidence: Evidence, seen: _Seen, setting: Setting) -> _Result:
    """A run that ended well: why it still may not count, and why it counts for less."""
    if fault := ran_none(check, run.output):
        return _Result(check.name, run, fault=fault)
    changed = seen.changed
    inside = [path for path in changed if is_within(path, check.folder)]
    if changed and not inside:
        return _Result(check.name, run, fault=f"it ran in the folder {check.folder}, where nothing was changed")
    buts = [
        _tampered(seen, evidence, run, check, setting.recipe(check)),
        unknown(run.exports),
        _alone(check, seen, run),
        f"it ran in {check.folder} only" if len(inside) < len(changed) else "",
        f"only for {check.narrow}" if check.narrow else "",
        "it runs nothing of the project" if check.static else "",
        "many files were changed at once, perhaps tests among them" if seen.unnamed else "",
        _unknown(evidence, setting),
    ]
    return _Result(check.name, run, tuple(filter(None, buts)), languages=check.languages)


def _untested(seen: _Seen, passed: Sequence[_Result]) -> list[str]:
    """Code that none of the checks can have run, since it is in another language."""
    whole = [result.languages for result in passed if not result.buts]
    if not all(whole):
        return []
    run = tuple(suffix for languages in whole for suffix in languages)
    left = [path for path in seen.changed if path.endswith(CODE) and not path.endswith(run)]
    return [f"it does not run {named(left)}"] if left else []


def _alone(check: Check, seen: _Seen, run: Run) -> str:
    """What a static check did not read, and what the run changed itself."""
    own = [path for path in seen.changed if seen.by.get(path) == run.call and not is_product(path)]
    if own:
        return f"the same command changed {named(own)}"
    if not check.static:
        return ""
    files = {posixpath.normpath(posixpath.join(check.folder, file)) for file in check.files}
    unread = [
        path
        for path in seen.changed
        if (check.suffixes and not path.endswith(check.suffixes))
        or not (not files or any(is_within(path, file) for file in files))
    ]
    return f"it did not read {named(unread)}" if unread else ""


def _tampered(seen: _Seen, evidence: Evidence, run: Run, check: Check, recipe: str) -> str:
    """Tests, configuration and runners that this session changed before the run."""
    paths = [path for path, seq in seen.guards.items() if seq < run.seq]
    for path in seen.changed if recipe else ():
        name = posixpath.relpath(path, check.folder)
        if path not in paths and seen.changed[path] < run.seq and disk.is_run_by(name, recipe):
            paths.append(path)
    if paths:
        return f"{named(paths)} {'was' if len(paths) == 1 else 'were'} changed too"
    return f"a command may have changed what runs it ({evidence.suspect})" if evidence.suspect else ""


def _unknown(evidence: Evidence, setting: Setting) -> str:
    """What was done that is not, or not by name, on this record."""
    if setting.child:
        return "what was changed before it was asked is not on this record"
    if not setting.kept and _unseen(evidence, setting):
        return "what commands changed is not recorded"
    if evidence.children:
        return "what sub-agents ran is not on this record"
    return "what ran in the background is not on record" if evidence.jobs else ""


def _unseen(evidence: Evidence, setting: Setting) -> int:
    """`seq` of the last command that may have changed something, where that is not recorded."""
    plain = [run.seq for run in evidence.runs if not mentions(run.command, setting.own)]
    return max([evidence.effects, *plain])


_CHECKS = re.compile(
    r"\b(?:pytest|py\.test|unittest|tox|nox|ctest|jest|vitest|mocha|rspec|phpunit|(?:make|npm|pnpm|yarn|bun|cargo|go|mvn"
    r"|gradlew?|dotnet|mix|swift|deno)\s(?:\S{1,80}\s){0,6}?(?:run\s+)?(?:tests?|check|verify))\b|node --test"
)


def _looks_like_one(command: str) -> bool:
    return _CHECKS.search(command) is not None


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def _later(seen: _Seen, result: _Result) -> str:
    later = [
        path for path, seq in seen.changed.items() if seq > result.run.seq and seen.by.get(path) != result.run.call
    ]
    later += [path for path, at in seen.moved.items() if at > result.run.at and path not in later]
    if not later:
        return "something was changed"
    return f"{named(later)} {'was' if len(later) == 1 else 'were'} changed"


def _changes(seen: _Seen) -> str:
    changed = seen.changed
    if seen.unnamed:
        return "many files changed"
    if not changed:
        return "commands ran whose changes are not recorded"
    return f"{next(iter(changed))} changed" if len(changed) == 1 else f"{len(changed)} files changed"


def _joined(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
