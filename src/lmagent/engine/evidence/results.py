"""Results: what each check of each remembered run came to, and why it counts for less, or not at all."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.events import FilesChanged
from lmagent.engine.evidence import disk, line, stages
from lmagent.engine.evidence.exports import deciding, unknown
from lmagent.engine.evidence.places import is_product, is_within, named
from lmagent.engine.evidence.record import Evidence, Run
from lmagent.engine.evidence.runners import Check, NoCheck, is_missing, mentions, ran_none, recognise


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
        demanded: whether all that is changed has to be checked, or the project has a check of its own; without, only
            code does.
    """

    workspace: str
    own: tuple[str, ...] = ()
    kept: bool = True
    child: bool = False
    paths_of: Callable[[FilesChanged], Sequence[str] | None] = lambda _: None
    moved: Callable[[Evidence], Mapping[str, float]] = lambda _: {}
    recipe: Callable[[Check], str] = lambda _: ""
    demanded: Callable[[], bool] = lambda: True


class Seen(Struct, frozen=True):
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


class Result(Struct, frozen=True):
    """One check of one run: why it counts for less, or why it does not count at all.

    Attributes:
        name: of the check.
        run: its run.
        buts: why it counts for less.
        fault: why it does not count.
        failed: whether its line failed.
        languages: suffixes of the code that it can run.
        whole: the line, where more than the check stood in it.
        code: the exit code that counts, the check's own or its line's.
    """

    name: str
    run: Run
    buts: tuple[str, ...] = ()
    fault: str = ""
    failed: bool = False
    languages: tuple[str, ...] = ()
    whole: str = ""
    code: int | None = 0

    def failure(self) -> str:
        """What failed: the line, where something else in it may have."""
        return f"{self.whole or self.name} failed (exit code {self.code})"


def results_of(evidence: Evidence, setting: Setting, seen: Seen) -> list[Result]:
    """What came of every check that is remembered, oldest first."""
    found = list[Result]()
    for run in evidence.runs:
        if run.command and mentions(run.command, setting.own):
            found += _of_run(run, evidence, setting, seen)
    return found


def _of_run(run: Run, evidence: Evidence, setting: Setting, seen: Seen) -> list[Result]:
    text = " ".join(run.command.split())
    if text in (" ".join(entry.split()) for entry in setting.own):
        read = line.Line(folder=run.ended)
        return [_judged(Check(_short(text), run.folder), run.code, read, run, evidence, setting, seen)]
    read = _read(run, setting)
    if read.fault:
        return [Result(_short(text), run, fault=read.fault)] if _looks_like_one(run.command) else []
    judged = [(recognise(ran, setting.own), run.code if ran.code is None else ran.code) for ran in read.ran]
    checks = [(one, code) for one, code in judged if isinstance(one, Check)]
    if checks:
        return [_judged(check, code, read, run, evidence, setting, seen) for check, code in checks]
    nothing = [one for one, _ in judged if isinstance(one, NoCheck)]
    if not nothing and _looks_like_one(run.command):
        return [Result(_short(text), run, fault="its exit code is not that of a check")]
    return [Result(one.name, run, fault=one.reason) for one in nothing]


def _read(run: Run, setting: Setting) -> line.Line:
    """What the line proves by its own exit code, or else by those of its parts, where they are known."""
    whole = line.read(run.command, run.folder, setting.workspace)
    if not run.stages or (run.code == 0 and not whole.fault and _has_check(whole, setting)):
        return whole
    parts = stages.read(run.command, run.folder, setting.workspace, run.stages)
    return parts if not parts.fault and _has_check(parts, setting) else whole


def _has_check(read: line.Line, setting: Setting) -> bool:
    return any(isinstance(recognise(ran, setting.own), Check) for ran in read.ran)


def _judged(
    check: Check, code: int | None, read: line.Line, run: Run, evidence: Evidence, setting: Setting, seen: Seen
) -> Result:
    """What a check came to, by the exit code that counts for it."""
    if code is None or run.code is None:
        return Result(check.name, run, fault="it did not come to its end")
    if code == _PIPE_CLOSED:
        return Result(check.name, run, fault="what reads its output ended before it did")
    by_itself = any(ran.code is not None for ran in read.ran)
    if code and is_missing(check, code, run.output):
        return Result(check.name, run, fault=f"it could not be started (exit code {code})")
    if code:
        whole = _short(" ".join(run.command.split())) if len(read.all) > 1 and not by_itself else ""
        return Result(check.name, run, failed=True, whole=whole, code=code)
    if read.folder != run.ended:
        return Result(check.name, run, fault="it ran in another folder than its words say")
    if fault := deciding(run.exports, setting.workspace):
        return Result(check.name, run, fault=fault)
    passed = _passed(check, run, evidence, seen, setting, by_itself)
    if passed.fault or passed.buts:
        return passed
    if by_itself and _speaks(read, run, setting.own):
        return replace(passed, buts=("something else in its line may have printed what it shows",))
    if _is_wrapped(read, setting.own):
        return replace(passed, buts=("the same line may have changed something before it and taken that back",))
    return passed


def _speaks(read: line.Line, run: Run, own: Sequence[str]) -> bool:
    """Whether something beside the checks of a line may print what is taken for theirs."""
    others = [ran for ran in read.all if not isinstance(recognise(ran, own), Check)]
    return not all(stages.is_silent(ran, run.command) for ran in others)


def _is_wrapped(read: line.Line, own: Sequence[str]) -> bool:
    """Whether something stands both before and behind the checks of a line that may do and undo: no look sees that."""
    kinds = [isinstance(recognise(ran, own), Check) for ran in read.all]
    others = [not (kind or line.only_reads(ran)) for kind, ran in zip(kinds, read.all, strict=True)]
    return any(any(others[:at]) and any(others[at:]) for at, kind in enumerate(kinds) if kind)


def _passed(check: Check, run: Run, evidence: Evidence, seen: Seen, setting: Setting, parts: bool) -> Result:
    """A run that ended well: why it still may not count, and why it counts for less."""
    if fault := ran_none(check, run.output, parts):
        return Result(check.name, run, fault=fault)
    changed = seen.changed
    inside = [path for path in changed if is_within(path, check.folder)]
    if changed and not inside:
        return Result(check.name, run, fault=f"it ran in the folder {check.folder}, where nothing was changed")
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
    return Result(check.name, run, tuple(filter(None, buts)), languages=check.languages)


def _alone(check: Check, seen: Seen, run: Run) -> str:
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


def _tampered(seen: Seen, evidence: Evidence, run: Run, check: Check, recipe: str) -> str:
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
    if not setting.kept and unseen(evidence, setting):
        return "what commands changed is not recorded"
    if evidence.children:
        return "what sub-agents ran is not on this record"
    return "what ran in the background is not on record" if evidence.jobs else ""


def unseen(evidence: Evidence, setting: Setting) -> int:
    """`seq` of the last command that may have changed something, where that is not recorded."""
    plain = [run.seq for run in evidence.runs if not mentions(run.command, setting.own)]
    return max([evidence.effects, *plain])


_PIPE_CLOSED = 128 + 13
"""Exit code of a program that wrote to a pipe that nobody reads any more (SIGPIPE)."""

_CHECKS = re.compile(
    r"\b(?:pytest|py\.test|unittest|tox|nox|ctest|jest|vitest|mocha|rspec|phpunit|(?:make|npm|pnpm|yarn|bun|cargo|go|mvn"
    r"|gradlew?|dotnet|mix|swift|deno)\s(?:\S{1,80}\s){0,6}?(?:run\s+)?(?:tests?|check|verify))\b|node --test"
)


def _looks_like_one(command: str) -> bool:
    return _CHECKS.search(command) is not None


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}…"


def logs(evidence: Evidence) -> frozenset[str]:
    """Files that `tee` made of what checks printed, and nothing else had its hands on: they are no part of the work."""
    by = dict[str, frozenset[str]]()
    for run in evidence.runs:
        if "tee" in run.command and _looks_like_one(run.command):
            names = (posixpath.normpath(posixpath.join(run.folder, name)) for name in stages.teed(run.command))
            by[run.call] = frozenset(name for name in names if name.endswith((".txt", ".out")) or "." not in name)
    found, begun = frozenset[str]().union(*by.values()), set[str]()
    for event in evidence.standing.values() if found else ():
        for change in event.changes:
            new = change.before is None or change.path in begun
            if not new or change.path not in by.get(event.call_id, ()):
                found -= {change.path}
            begun.add(change.path)
    return found
