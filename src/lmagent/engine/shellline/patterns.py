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
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from lmagent.engine.shellline.segments import DECLARING, HARMLESS_TARGETS, CommandLine, Segment
from lmagent.engine.shellline.tree import parse
from lmagent.engine.shellline.unwrap import base_name, is_bare
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
    "parse",
    "plain",
    "understood",
]

_DANGEROUS = re.compile(
    r"(?:PATH|\w+PATH|LD_\w+|DYLD_\w+|BASH\w*|ENV|IFS|PS[0-4]|GIT_\w+|PYTHON\w*|NODE_\w+|PERL\w*|RUBY\w*|GEM_\w+|JAVA\w*"
    r"|_JAVA\w*|JDK_\w+|MAVEN_\w+|GRADLE_\w+|GO\w+|CGO_\w+|CARGO\w*|RUST(?!_BACKTRACE)\w*|CC|CXX|CPP|LD|AR|AS|MAKE\w*|SHELL\w*"
    r"|\w*(?:PAGER|EDITOR|VISUAL|BROWSER|ASKPASS|COMMAND|CMD|OPTS|OPTIONS|FLAGS|PLUGINS|PRELOAD|CONFIG\w*|OPEN|CLOSE)"
    r"|HOME|\w+_HOME|XDG_\w+|TMPDIR|LESS\w*|MAN\w*|NPM_\w+|YARN_\w+|PNPM_\w+|PIP_\w+|UV_\w+|VIRTUAL_ENV|PYTEST_\w+|TAR_\w+"
    r"|SSH_\w+|RSYNC_\w+|DOCKER_\w+|TERMINFO\w*|LOCPATH|GCONV_PATH|MALLOC_\w+|GLIBC_\w+|NLSPATH|HOSTALIASES|\w*PROXY"
    r"|PROMPT\w*|HIST\w+|INPUTRC|GLOBIGNORE|CDPATH|FPATH|ZDOTDIR|KRB5\w*|OPENSSL\w*|SSL\w*|CURL_\w+|WGET\w*|LUA_\w+"
    r"|PHP\w*|DOTNET_\w+|CORECLR_\w+|COR_\w+|ELECTRON_\w+|QT_\w+|GTK_\w+|GIO_\w+)",
    re.IGNORECASE,
)  # fmt: skip

# What a final `*` does not cover: options with which the program runs another one, writes or deletes.
_SHARP: dict[str, str] = {
    "git": "-O -x --output --output-directory --ext-diff --textconv --open-files-in-pager --exec --exec-path --config "
    "--config-env --upload-pack --receive-pack --git-dir --work-tree --template --extcmd --tool",
    "rg": "--pre --hostname-bin", "sort": "-o -T --output --compress-program", "tree": "-o", "uniq": "",
    "fd": "-x -X --exec --exec-batch", "fdfind": "-x -X --exec --exec-batch",
    "find": "",  # what it runs is unwrapped; here it only means that a run-time word may become -delete
    "tar": "-I -F --to-command --use-compress-program --checkpoint-action --rsh-command --info-script "
    "--new-volume-script",
    "printf": "-v", "test": "-v", "cargo": "--config", "npm": "--script-shell --node-options -C --prefix --userconfig",
    "pytest": "-p -c -o --rootdir --confcutdir --override-ini --basetemp --junitxml --junit-xml --log-file --pastebin "
    "--config-file --debug --pdbcls --import-mode",
    "go": "-exec -toolexec -vettool -o -C -overlay", "date": "-s --set", "file": "-C --compile",
    "less": "-o -O --log-file", "man": "-P -H --pager --html", "zip": "-T -TT", "rsync": "-e --rsh --rsync-path",
    "hostname": "-F --file", "diff": "--to-file", "awk": "-f -i", "gawk": "-f -i -l",
}  # fmt: skip
_GIT_COMMANDS = (
    "config", "filter-branch", "difftool", "mergetool", "clone", "bisect run", "submodule foreach", "hook", "daemon",
)  # fmt: skip
_GIT_QUIET = frozenset(("--no-pager", "-P", "--version", "--help", "--no-optional-locks", "--literal-pathspecs"))
_VALUED = frozenset(("-C", "-c", "-f", "--git-dir", "--work-tree", "--namespace", "--prefix", "--manifest-path"))

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


class _Pat(NamedTuple):
    """A word of a pattern."""

    text: str
    glob: re.Pattern[str] | None = None


class _Pattern(NamedTuple):
    words: tuple[_Pat, ...]
    rest: bool


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> _Pattern | None:
    """The words of a pattern, or None where a quote is left open."""
    words: list[_Pat] = []
    for token in re.finditer(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?P<bad>['"\\]))+""", pattern, re.DOTALL):
        if token["bad"]:
            return None
        text, form, globs = "", "", False
        for piece in re.findall(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|.""", token[0], re.DOTALL):
            if piece == "*":
                text, form, globs = text + "*", form + ".*", True
                continue
            value = piece
            if piece[0] == "'" and len(piece) > 1:
                value = piece[1:-1]
            elif piece[0] == '"' and len(piece) > 1:
                value = re.sub(r'\\([$`"\\])', r"\1", piece[1:-1])
            elif piece[0] == "\\":
                value = piece[1:]
            text, form = text + value, form + re.escape(value)
        words.append(_Pat(text, re.compile(form, re.DOTALL) if globs else None))
    rest = bool(words) and words[-1].text == "*" and words[-1].glob is not None
    return _Pattern(tuple(words[:-1] if rest else words), rest)


def understood(pattern: str) -> bool:
    """Whether every quote of a pattern is closed."""
    return _compiled(pattern) is not None


def matches(pattern: str, segment: Segment) -> bool:
    """Whether the pattern of an allow rule covers a command; strict."""
    compiled = _compiled(pattern)
    if compiled is None or not segment.argv or segment.barred or not (compiled.words or compiled.rest):
        return False
    if set(segment.writes) - HARMLESS_TARGETS or any(map(is_dangerous, segment.assignments)):
        return False
    words, argv = compiled.words, segment.argv
    if argv[0] in DECLARING and any(map(is_dangerous, argv[1:])):
        return False
    if len(argv) < len(words) or (not compiled.rest and (len(argv) > len(words) or segment.dynamic)):
        return False
    if any(at < max(1, len(words)) for at in segment.unknown):
        return False
    if not all(_covers(pat, word, at) for at, (pat, word) in enumerate(zip(words, argv, strict=False))):
        return False
    return not _is_sharp(segment, len(words))


def is_dangerous(assignment: str) -> bool:
    """Whether a variable changes which programs a program runs; an index is never looked into."""
    return _DANGEROUS.fullmatch(re.split(r"\+?=|\[", assignment, maxsplit=1)[0]) is not None


def _covers(pat: _Pat, word: str, at: int) -> bool:
    if at == 0 and "/" in word and is_bare(word) and "/" not in pat.text:
        word = base_name(word)
    if pat.glob is None:
        return pat.text == word
    if at == 0 and "/" in word and pat.text.count("/") != word.count("/"):
        return False
    dashed = word.startswith("-") and not pat.text.startswith("-")
    return not dashed and ".." not in word.split("/") and pat.glob.fullmatch(word) is not None


def _is_sharp(segment: Segment, spelled: int) -> bool:
    """Whether a word that the pattern does not spell out makes the program run, write or delete something else."""
    name, argv = base_name(segment.argv[0]), segment.argv
    options = _SHARP.get(name)
    if options is None:
        return False
    if name == "git" and _is_sharp_git(argv, spelled):
        return True
    if name == "uniq" and sum(not word.startswith("-") for word in argv[1:]) > 1:
        return True
    end = argv.index("--") if "--" in argv and name != "find" else len(argv)
    if any(at < end or (at == len(argv) and end == len(argv)) for at in segment.loose):
        return True
    return any(_is_option(word, options.split()) for word in argv[max(1, spelled) : end])


def _is_option(word: str, options: Sequence[str]) -> bool:
    """Long ones may be abbreviated, short ones stand in a cluster."""
    if word.startswith("--"):
        return len(word) > 2 and any(option.startswith(word.partition("=")[0]) for option in options)
    if not word.startswith("-"):
        return False
    return any(
        word.partition("=")[0] == option or (len(option) == 2 and option[1] in word[1:])
        for option in options
        if not option.startswith("--")
    )


def _is_sharp_git(argv: Sequence[str], spelled: int) -> bool:
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] not in _GIT_QUIET and argv[at] != "-C" and at >= spelled:
            return True
        at += 2 if argv[at] in ("-C", "-c") else 1
    if at < spelled:
        return False
    command = " ".join(argv[at : at + 2])
    return any(command == one or command.startswith(one + " ") for one in _GIT_COMMANDS)


def hits(pattern: str, segment: Segment) -> bool:
    """Whether the pattern of a deny or ask rule could mean a command; generous."""
    compiled = _compiled(pattern) or _Pattern(tuple(_Pat(word) for word in pattern.split()), rest=True)
    if not compiled.words:
        return compiled.rest
    if _hits(compiled.words, segment.argv, segment.unknown):
        return True
    return any(_hits(compiled.words, argv, ()) for argv in segment.via)


def _hits(pats: Sequence[_Pat], argv: Sequence[str], unknown: Sequence[int]) -> bool:
    if not argv:
        return False
    name, wanted = argv[0].casefold(), pats[0].text.casefold()
    if not any(one == wanted or fnmatchcase(one, wanted) for one in (name, base_name(name))) and (
        base_name(wanted) != base_name(name) or "/" not in wanted
    ):
        return False
    words = [(word, at in unknown) for at, word in enumerate(argv)][1:]
    if len(argv) in unknown:
        words.append(("$@", True))
    at = 0
    for index, pat in enumerate(pats[1:]):
        if pat.text.startswith("-"):
            if not _has_option(pat, words):
                return False
            continue
        anywhere = index > 0 or pat.glob is not None or "/" in pat.text
        at = _find_word(pat, words, at, anywhere=anywhere)
        if at < 0:
            return False
    return True


def _find_word(pat: _Pat, words: Sequence[tuple[str, bool]], at: int, *, anywhere: bool) -> int:
    """The place after the word, or -1. The first operand may only stand behind options (and their values)."""
    skipped = ""
    while at < len(words):
        word, unknown = words[at]
        is_value = unknown and skipped in _VALUED
        if not is_value and _is_word(pat, word, unknown=unknown):
            return at + 1
        if not anywhere and not word.startswith("-") and not skipped.startswith("-"):
            return -1
        skipped = word if word.startswith("-") and not unknown and "=" not in word else ""
        at += 1
    return -1


def _is_word(pat: _Pat, word: str, *, unknown: bool) -> bool:
    if pat.text == word or (pat.glob is not None and pat.glob.fullmatch(word) is not None):
        return True
    # A run-time word may become anything; a glob only what its letters allow.
    return unknown and (re.search(r"[$`{]", word) is not None or fnmatchcase(pat.text, word))


def _has_option(pat: _Pat, words: Sequence[tuple[str, bool]]) -> bool:
    if any(_is_word(pat, word, unknown=unknown) for word, unknown in words):
        return True
    if pat.text.startswith("--"):
        name = pat.text.partition("=")[0]
        long = [word.partition("=")[0] for word, _ in words if word.startswith("--") and len(word) > 3]
        return any(name.startswith(word) or word == name for word in long)
    clusters = "".join(word[1:] for word, _ in words if re.match(r"-[^-]", word))
    return len(pat.text) > 1 and all(letter in clusters for letter in pat.text[1:])


def allowed(line: CommandLine, patterns: Sequence[str]) -> bool:
    """Whether allow rules cover the whole line: every command of it, and there is one."""
    if line.opaque or not line.segments:
        return False
    return all(any(matches(pattern, segment) for pattern in patterns) for segment in line.segments)


def first_denied(line: CommandLine, patterns: Sequence[str]) -> str:
    """The first pattern of deny (or ask) rules that hits the line, or nothing."""
    for pattern in patterns:
        if any(hits(pattern, segment) for segment in line.segments):
            return pattern
        if line.opaque and _mentions(pattern, line.text):
            return pattern
    return ""


def _mentions(pattern: str, text: str) -> bool:
    """Whether a line that nobody understands has the pattern's program in it, also with quotes in the midst of it."""
    compiled = _compiled(pattern)
    words = compiled.words if compiled else tuple(_Pat(word) for word in pattern.split())
    if not words or words[0].text == "*":
        return True
    name = base_name(words[0].text.casefold())
    escaped = re.escape(name).replace(re.escape("*"), r"[^\s/]*")
    form = re.compile(rf"(?<!\w){escaped}(?!\w)")
    return any(form.search(one) for one in _spellings(text))


@lru_cache(maxsize=4)
def _spellings(text: str) -> tuple[str, str]:
    """A text, and the same without what can be put into the midst of a word to hide it."""
    text = text.casefold()
    return text, re.sub(r"""\\\n|[\\'"]|\$\{?(?:ifs|@|\*)\}?""", "", text)


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
