"""Shell lines for the permission gate: what a line runs, and whether the rules `shell(PATTERN)` allow or deny it.

A pattern is a list of words, compared one by one with those of a command: `git status` is exactly that, a final `*`
stands for any further arguments (`git log *`, also none), `*` inside a word for any text of that word (never a dash
at its beginning, never `..`), and quotes are removed as a shell does.

To allow is strict: every command of the line is covered, the line is understood in full, and
  - a program counts by its name only when it is bare or in a system folder (`./git` is not `git`);
  - a word that is only known at run time is covered by a final `*`, by nothing else;
  - no command writes by redirect, has a dangerous variable set for it, or calls a function the line defines;
  - options that run other programs or write files (`git -c`, `rg --pre`) have to be spelled out in the pattern,
    and for those programs a run-time word must not be able to become an option.
To deny (and to ask) is generous: any command that could be meant is enough, in any folder, inside any wrapper; a
pattern is the beginning of a command; options count in any order; an opaque line is searched for the name as text.
`may_hide` tells of lines that run what only the run will tell: no such rule can be sure of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from lmagent.engine.shellline.compiled import Pat, compiled, understood
from lmagent.engine.shellline.deny import first_denied, hits, may_hide
from lmagent.engine.shellline.options import is_sharp
from lmagent.engine.shellline.segments import DECLARING, HARMLESS_TARGETS, CommandLine, Segment
from lmagent.engine.shellline.tree import parse
from lmagent.engine.shellline.unwrap import base_name, is_bare
from lmagent.engine.shellline.variables import is_dangerous
from lmagent.engine.shellline.words import names_in

__all__ = [
    "CommandLine",
    "Segment",
    "allowed",
    "describe",
    "first_denied",
    "grants",
    "hits",
    "is_dangerous",
    "matches",
    "may_hide",
    "parse",
    "plain",
    "understood",
]

# Harmless with any argument that is not sharp: reads what it is given, runs nothing else, deletes nothing.
_HARMLESS = names_in(
    "ls cat head tail wc grep egrep fgrep rg pwd echo pytest du df stat basename dirname realpath readlink which true "
    "false cut tr nl cmp diff comm md5sum sha1sum sha256sum uname whoami id sleep seq"
)
_HARMLESS_PAIRS = frozenset(
    ("git status", "git log", "git diff", "git show", "git blame", "git ls-files", "git rev-parse", "git shortlog",
     "git describe", "cargo test", "cargo check", "cargo build", "npm test", "go test", "go vet")
)  # fmt: skip
_NEVER_GRANTED = frozenset(("sudo", "doas", "su", "source", ".", "exec", "cd", "export", "set"))
_INTERPRETERS = re.compile(
    r"python[\d.]*|pypy[\d.]*|perl|ruby|node|nodejs|deno|bun|php|lua[\d.]*|Rscript|irb|psql|sqlite3"
)


def matches(pattern: str, segment: Segment) -> bool:
    """Whether the pattern of an allow rule covers a command; strict."""
    form = compiled(pattern)
    if form is None or not segment.argv or segment.barred or not (form.words or form.rest):
        return False
    if set(segment.writes) - HARMLESS_TARGETS or any(map(is_dangerous, segment.assignments)):
        return False
    words, argv = form.words, segment.argv
    if argv[0] in DECLARING and any(map(is_dangerous, argv[1:])):
        return False
    if len(argv) < len(words) or (not form.rest and (len(argv) > len(words) or segment.dynamic)):
        return False
    if any(at < max(1, len(words)) for at in segment.unknown):
        return False
    if not all(_covers(pat, word, at) for at, (pat, word) in enumerate(zip(words, argv, strict=False))):
        return False
    return not is_sharp(segment, len(words))


def _covers(pat: Pat, word: str, at: int) -> bool:
    if at == 0 and "/" in word and is_bare(word) and "/" not in pat.text:
        word = base_name(word)
    if pat.glob is None:
        return pat.text == word
    if at == 0 and "/" in word and pat.text.count("/") != word.count("/"):
        return False
    dashed = word.startswith("-") and not pat.text.startswith("-")
    return not dashed and ".." not in word.split("/") and pat.glob.fullmatch(word) is not None


def allowed(line: CommandLine, patterns: Sequence[str]) -> bool:
    """Whether allow rules cover the whole line: every command of it, and there is one."""
    if line.opaque or not line.segments:
        return False
    return all(any(matches(pattern, segment) for pattern in patterns) for segment in line.segments)


def grants(line: CommandLine) -> tuple[str, ...]:
    """What "always" would add: narrow patterns that cover exactly this line, or nothing where there are none."""
    if line.opaque or not line.segments:
        return ()
    found: list[str] = []
    for segment in line.segments:
        pattern = _grant(segment)
        if not pattern or not matches(pattern, segment):
            return ()
        if pattern not in found:
            found.append(pattern)
    return tuple(found)


def _grant(segment: Segment) -> str:
    argv = segment.argv
    if not argv or argv[0] in _NEVER_GRANTED or any(via[0] in ("xargs", "find") for via in segment.via):
        return ""
    name = base_name(argv[0]) if is_bare(argv[0]) else argv[0]
    pair = " ".join((name, *argv[1:2]))
    if name in _HARMLESS:
        if matches(f"{name} *", segment):
            return f"{name} *"
    elif pair in _HARMLESS_PAIRS and matches(f"{pair} *", segment):
        return f"{pair} *"
    reads_program = _INTERPRETERS.fullmatch(name) and all(word.startswith("-") and len(word) < 3 for word in argv[1:])
    if segment.dynamic or reads_program or any(not word.isprintable() for word in argv):
        return ""
    return " ".join(shlex.quote(word) for word in argv)


def plain(line: CommandLine) -> bool:
    """Whether a line is one command, with nothing around it, so that it says itself what it does."""
    return not line.opaque and len(line.segments) == 1 and not _around(line.segments[0])


def _around(segment: Segment) -> bool:
    return bool(segment.via or segment.assignments or set(segment.writes) - HARMLESS_TARGETS)


def describe(line: CommandLine) -> str:
    """One line for a person: what would run, what is written, and what cannot be known."""
    runs = list(dict.fromkeys(_shown(segment) for segment in line.segments if segment.argv))
    writes = list(
        dict.fromkeys(
            target for segment in line.segments for target in segment.writes if target not in HARMLESS_TARGETS
        )
    )
    parts: list[str] = []
    if runs:
        parts.append("runs: " + ", ".join(runs[:8]) + (f" and {len(runs) - 8} more" if len(runs) > 8 else ""))
    if writes:
        parts.append("writes: " + ", ".join(_short(target, 60) for target in writes[:8]))
    if line.opaque:
        parts.append(f"not understood: {_short(line.opaque, 120)}")
    return "; ".join(parts) or "runs nothing"


def _shown(segment: Segment) -> str:
    wrappers = [_short(argv[0], 24) + (" -c …" if "-c" in argv[1:2] else " …") for argv in segment.via]
    return " → ".join([*wrappers, _short(" ".join(segment.argv), 60)])


def _short(text: str, width: int) -> str:
    """Cut, with everything escaped that a terminal would obey instead of showing it."""
    cut = text if len(text) <= width else text[: width - 1] + "…"
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cut)
