"""Verdict: whether what was changed is verified, in one line. Rather a good run too few than a bad one too many."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.work import Proof
from lmagent.engine.evidence import line
from lmagent.engine.evidence.places import is_guard, is_leaving, is_product, is_within
from lmagent.engine.evidence.record import Evidence, Run
from lmagent.engine.evidence.runners import Check, mentions, ran_none, recognise, shows
from lmagent.engine.shellline.variables import is_dangerous

if TYPE_CHECKING:
    from lmagent.engine.session import Session

NAMED = 2
"""Paths that a reason names."""

_DECIDING = re.compile(r"TEST|CHECK|LINT|ARGS|SKIP|ONLY|TARGET|PYTHON|NODE|MAKE", re.IGNORECASE)
_SAFE_PATH = re.compile(r"/(?:usr|bin|sbin|opt|nix|snap)(?:/.*)?")
_OWN_PATH = re.compile(r"(?:(?:\.?venv|env)(?:/(?:bin|Scripts))?|node_modules/\.bin)")


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
    """

    workspace: str
    own: tuple[str, ...] = ()
    kept: bool = True
    child: bool = False


class _Result(Struct, frozen=True):
    """One check of one run: why it counts for less, or why it does not count at all."""

    name: str
    run: Run
    buts: tuple[str, ...] = ()
    fault: str = ""
    failed: bool = False


def setting_of(session: Session) -> Setting:
    """What a judgement on this session depends on besides its events."""
    wiring, state = session.wiring, session.state
    return Setting(
        workspace=str(wiring.workspace),
        own=session.agent.checks,
        kept=wiring.snapshots is not None,
        child=state.work.parent is not None,
    )


def judge(evidence: Evidence, setting: Setting) -> Verdict:
    """The verdict on what was changed since the last one that was good."""
    changed = {path: seq for path, seq in evidence.touched.items() if seq}
    unseen = 0 if setting.kept else _unseen(evidence, setting)
    last = max([evidence.unnamed, unseen, *changed.values()])
    if not last:
        return Verdict()
    results = _results(evidence, setting, changed)
    news = last > evidence.judged or any(result.run.seq > evidence.judged for result in results)
    if not news:
        return Verdict()
    verdict = _weigh(evidence, changed, unseen, results)
    plain = "".join(char if char.isprintable() else "�" for char in verdict.reason)  # a path may hold a line's end
    return replace(verdict, reason=plain)


def _weigh(evidence: Evidence, changed: dict[str, int], unseen: int, results: Sequence[_Result]) -> Verdict:
    latest = {(result.name, bool(result.fault)): result for result in results}  # the last run of each counts
    after = [result for result in latest.values() if _is_after(result, evidence, changed, unseen)]
    failed = [result for result in after if result.failed]
    passed = [result for result in after if not result.failed and not result.fault]
    if passed:
        best = [result for result in passed if not result.buts] or passed[:1]
        names = _joined([result.name for result in best])
        buts = [f"{result.name} failed (exit code {result.run.code})" for result in failed]
        buts += best[0].buts
        if not buts:
            return Verdict("verified", f"{names} passed after the last change", passed=True)
        return Verdict("partly verified", f"{names} passed after the last change, but {'; '.join(buts[:NAMED])}", True)
    if failed:
        return Verdict("unverified", f"{failed[-1].name} failed (exit code {failed[-1].run.code})")
    faulty = [result for result in after if result.fault]
    if faulty:
        return Verdict(
            "unverified", f"{_changes(changed, evidence)}, and {faulty[-1].name} proves nothing: {faulty[-1].fault}"
        )
    early = [result for result in latest.values() if not result.failed and not result.fault]
    if early:
        return Verdict("unverified", f"{early[-1].name} passed, but {_later(evidence, changed, early[-1])} after it")
    plural = len(changed) != 1 or evidence.unnamed
    return Verdict("unverified", f"{_changes(changed, evidence)}, nothing checked {'them' if plural else 'it'}")


def _is_after(result: _Result, evidence: Evidence, changed: dict[str, int], unseen: int) -> bool:
    """Whether nothing was changed since the run began, save by the run itself."""
    others = [seq for path, seq in changed.items() if evidence.by.get(path) != result.run.call]
    return result.run.seq > max([unseen, evidence.unnamed, *others], default=0)


def _results(evidence: Evidence, setting: Setting, changed: dict[str, int]) -> list[_Result]:
    found = list[_Result]()
    for run in evidence.runs:
        if run.command and mentions(run.command, setting.own):
            found += _of_run(run, evidence, setting, changed)
    return found


def _of_run(run: Run, evidence: Evidence, setting: Setting, changed: dict[str, int]) -> list[_Result]:
    text = " ".join(run.command.split())
    if text in (" ".join(entry.split()) for entry in setting.own):
        checks: list[Check] = [Check(_short(text), run.folder)]
        read = line.Line(folder=run.ended)
    else:
        read = line.read(run.command, run.folder, setting.workspace)
        if read.fault:
            return [_Result(_short(text), run, fault=read.fault)] if _looks_like_one(run.command) else []
        judged = [recognise(ran, setting.own) for ran in read.ran]
        checks = [one for one in judged if isinstance(one, Check)]
        if not checks:
            nothing = [one for one in judged if one is not None and not isinstance(one, Check)]
            hidden = not nothing and _looks_like_one(run.command)
            if hidden:
                return [_Result(_short(text), run, fault="its exit code is not that of a check")]
            return [_Result(one.name, run, fault=one.reason) for one in nothing]
    if run.code is None:
        return [_Result(check.name, run, fault="it did not come to its end") for check in checks]
    if run.code:
        return [_Result(check.name, run, failed=True) for check in checks]
    if read.folder != run.ended:
        return [_Result(check.name, run, fault="it ran in another folder than its words say") for check in checks]
    if fault := _tricked(run.exports, setting.workspace):
        return [_Result(check.name, run, fault=fault) for check in checks]
    return [_passed(check, run, evidence, changed, setting) for check in checks]


def _passed(check: Check, run: Run, evidence: Evidence, changed: dict[str, int], setting: Setting) -> _Result:
    """A run that ended well: why it still may not count, and why it counts for less."""
    if fault := ran_none(check, run.output):
        return _Result(check.name, run, fault=fault)
    inside = [path for path in changed if is_within(path, check.folder)]
    if changed and not inside:
        return _Result(check.name, run, fault=f"it ran in the folder {check.folder}, where nothing was changed")
    buts = [
        _tampered(evidence, run),
        _alone(check, changed, evidence, run),
        f"it ran in {check.folder} only" if len(inside) < len(changed) else "",
        f"only for {check.narrow}" if check.narrow else "",
        "it runs nothing of the project" if check.static else "",
        "" if shows(check, run.output) else "its output does not show that tests ran",
        _unknown(evidence, setting),
    ]
    return _Result(check.name, run, tuple(filter(None, buts)))


def _alone(check: Check, changed: dict[str, int], evidence: Evidence, run: Run) -> str:
    """What a static check did not read, and what the run changed itself."""
    own = [path for path in changed if evidence.by.get(path) == run.call and not is_product(path)]
    if own:
        return f"the same command changed {_named(own)}"
    if not check.static:
        return ""
    files = {posixpath.normpath(posixpath.join(check.folder, file)) for file in check.files}
    unread = [
        path
        for path in changed
        if (check.suffixes and not path.endswith(check.suffixes))
        or not (not files or any(is_within(path, file) for file in files))
    ]
    return f"it did not read {_named(unread)}" if unread else ""


def _tampered(evidence: Evidence, run: Run) -> str:
    """Tests, configuration and runners that this session changed before the run."""
    paths = dict.fromkeys(
        change.path
        for event in evidence.standing.values()
        if event.seq < run.seq
        for change in event.changes
        if is_guard(change.path) and not is_leaving(change.path)
    )
    paths |= {path: None for path, seq in evidence.touched.items() if seq < run.seq and is_guard(path)}
    if paths:
        return f"{_named(list(paths))} {'was' if len(paths) == 1 else 'were'} changed too"
    return f"{evidence.suspect} may have been changed too" if evidence.suspect else ""


def _unknown(evidence: Evidence, setting: Setting) -> str:
    """What was done that is not, or not by name, on this record."""
    if any(event.blob for event in evidence.standing.values()):
        return "many files were changed at once, perhaps tests among them"
    if setting.child:
        return "what was changed before it was asked is not on this record"
    if evidence.children:
        return "what sub-agents changed is not all on this record"
    return "what ran in the background is not on record" if evidence.jobs else ""


def _unseen(evidence: Evidence, setting: Setting) -> int:
    """`seq` of the last command that may have changed something, where that is not recorded."""
    plain = [run.seq for run in evidence.runs if not mentions(run.command, setting.own)]
    return max([evidence.effects, *plain])


def _tricked(exports: dict[str, str], workspace: str) -> str:
    """Variables of earlier commands that may decide what a check does."""
    for name, value in exports.items():
        if name in line.HARMLESS:
            continue
        if name == "PATH":
            good = all(_SAFE_PATH.fullmatch(entry) or _is_own(entry, workspace) for entry in str(value).split(":"))
        elif name.startswith("VIRTUAL_ENV"):
            good = _is_own(str(value), workspace) or name.endswith("PROMPT")
        else:
            good = not is_dangerous(name) and _DECIDING.search(name) is None
        if not good:
            return f"{name} was set before, which may decide what it does"
    return ""


def _is_own(path: str, workspace: str) -> bool:
    """Whether it is where a project keeps its own programs: what changes there is seen."""
    roots = (f"{workspace}/", "/workspace/")
    return any(path.startswith(root) and _OWN_PATH.fullmatch(path.removeprefix(root)) for root in roots)


_CHECKS = re.compile(
    r"\b(?:pytest|py\.test|unittest|tox|nox|ctest|jest|vitest|mocha|rspec|phpunit|(?:make|npm|pnpm|yarn|bun|cargo|go|mvn"
    r"|gradlew?|dotnet|mix|swift|deno)\s(?:\S+\s)*?(?:run\s+)?(?:tests?|check|verify))\b|node --test"
)


def _looks_like_one(command: str) -> bool:
    return _CHECKS.search(command) is not None


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def _later(evidence: Evidence, changed: dict[str, int], result: _Result) -> str:
    later = [path for path, seq in changed.items() if seq > result.run.seq and evidence.by.get(path) != result.run.call]
    if not later:
        return "something was changed"
    return f"{_named(later)} {'was' if len(later) == 1 else 'were'} changed"


def _changes(changed: dict[str, int], evidence: Evidence) -> str:
    if evidence.unnamed:
        return "many files changed"
    if not changed:
        return "commands ran whose changes are not recorded"
    return f"{next(iter(changed))} changed" if len(changed) == 1 else f"{len(changed)} files changed"


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more


def _joined(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
