"""Match the patterns of rules on commands against a shell line.

A pattern is a list of words, compared one by one with the words of a command: `git status` is exactly that, a final `*`
matches all further operands and harmless options (`git log *`), `*` inside a word matches any text of that word, and
quotes are removed as in a shell. Allow rules are strict: the line must be clear, and they must match each of its
commands. Deny and ask rules are generous: they match one command that could be meant, in any folder, with its options
in any order.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from lmagent.policy.commands import HARMLESS_TARGETS, Command, Line
from lmagent.policy.options import READERS, covers
from lmagent.policy.wrappers import base_name, is_bare

_HARMLESS_VARIABLES = re.compile(
    r"(?:CI|DEBUG|LANG|LC_\w+|TZ|TERM|COLUMNS|NO_COLOR|FORCE_COLOR|RUST_BACKTRACE)=.*", re.S
)
_VALUED = frozenset(("-C", "-c", "-f", "--git-dir", "--work-tree", "--namespace", "--prefix", "--manifest-path"))

_GRANTED = READERS | {"rg", "diff", "pytest"}
_GRANTED_PAIRS = frozenset(
    ("git status", "git log", "git diff", "git show", "git blame", "git ls-files", "git rev-parse", "git shortlog",
     "git describe", "cargo test", "cargo check", "cargo build", "npm test", "go test", "go vet")
)  # fmt: skip
_SHOWN = 60
_NEVER_GRANTED = frozenset(("sudo", "doas", "su", "source", ".", "exec", "cd", "export", "set"))
_INTERPRETERS = re.compile(r"(?:python|pypy|lua)[\d.]*|perl|ruby|node|nodejs|deno|bun|php|Rscript|irb|psql|sqlite3")


class Pat(NamedTuple):
    text: str
    glob: re.Pattern[str] | None = None


class RulePattern(NamedTuple):
    """The words of a pattern; `rest`: further arguments may follow."""

    words: tuple[Pat, ...]
    rest: bool


@lru_cache(maxsize=512)
def compiled(pattern: str) -> RulePattern | None:
    """Return the words of a pattern, or None if a quote is left open."""
    words: list[Pat] = []
    for token in re.finditer(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?P<bad>['"\\]))+""", pattern, re.DOTALL):
        if token["bad"]:
            return None
        text, form = "", ""
        for piece in re.findall(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|.""", token[0], re.DOTALL):
            value = piece
            if piece[0] == "'":
                value = piece[1:-1]
            elif piece[0] == '"':
                value = re.sub(r'\\([$`"\\])', r"\1", piece[1:-1])
            elif piece[0] == "\\":
                value = piece[1:]
            text, form = text + value, form + (".*" if piece == "*" else re.escape(value))
        words.append(Pat(text, re.compile(form, re.DOTALL) if form != re.escape(text) else None))
    rest = bool(words) and words[-1].text == "*" and words[-1].glob is not None
    return RulePattern(tuple(words[:-1] if rest else words), rest)


def allowed(line: Line, patterns: Sequence[str]) -> bool:
    """Return whether allow rules cover a line: it is clear, and they cover each of its commands."""
    if line.unclear or not line.commands or set(line.writes) - HARMLESS_TARGETS:
        return False
    if not all(map(_HARMLESS_VARIABLES.fullmatch, line.assignments)):
        return False
    return all(any(_matches(pattern, command) for pattern in patterns) for command in line.commands)


def _matches(pattern: str, command: Command) -> bool:
    form, argv = compiled(pattern), command.argv
    if form is None or not argv or not (form.words or form.rest) or len(argv) < len(form.words):
        return False
    if not form.rest and (len(argv) > len(form.words) or command.unknown):
        return False
    if any(at < max(1, len(form.words)) for at in command.unknown):
        return False
    if not all(_covers(pat, word, at) for at, (pat, word) in enumerate(zip(form.words, argv, strict=False))):
        return False
    return covers(argv, max(1, len(form.words)), frozenset(command.unknown), frozenset(command.loose))


def _covers(pat: Pat, word: str, at: int) -> bool:
    if at == 0 and "/" in word and is_bare(word) and "/" not in pat.text:
        word = base_name(word)
    if pat.glob is None:
        return pat.text == word
    if at == 0 and "/" in word and pat.text.count("/") != word.count("/"):
        return False
    dashed = word.startswith(("-", "+")) and word[0] != pat.text[0]
    return not dashed and ".." not in word.split("/") and pat.glob.fullmatch(word) is not None


def denied(line: Line, patterns: Sequence[str]) -> str:
    """Return the first pattern of deny (or ask) rules that could mean a command of the line, or nothing."""
    for pattern in patterns:
        form = compiled(pattern) or RulePattern(tuple(map(Pat, pattern.split())), rest=True)
        if not form.words or any(_hits(form.words, command) for command in (*line.commands, *line.possible)):
            return pattern
        if line.unclear and _mentions(form.words, line.text):
            return pattern
    return ""


def _hits(pats: Sequence[Pat], command: Command) -> bool:
    if command.globs:
        return True  # a command's name is spelled with wildcards only to hide it
    if not command.argv or not _is_name(pats[0].text.casefold(), command.argv[0].casefold()):
        return False
    words = [(word, at in command.unknown) for at, word in enumerate(command.argv)][1:]
    words += [("$@", True)] if len(command.argv) in command.unknown else []
    at = 0
    for index, pat in enumerate(pats[1:]):
        if pat.text.startswith("-"):
            if not _has_option(pat, words):
                return False
            continue
        at = _find_word(pat, words, at, anywhere=index > 0 or pat.glob is not None or "/" in pat.text)
        if at < 0:
            return False
    return True


def _is_name(wanted: str, name: str) -> bool:
    names = (name, base_name(name))
    return any(one == wanted or fnmatchcase(one, wanted) for one in names) or base_name(wanted) == names[1]


def _find_word(pat: Pat, words: Sequence[tuple[str, bool]], at: int, *, anywhere: bool) -> int:
    """Return the position after the word, or -1. Only options and their values may come before the first operand."""
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


def _is_word(pat: Pat, word: str, *, unknown: bool) -> bool:
    if pat.text == word or (pat.glob is not None and pat.glob.fullmatch(word) is not None):
        return True
    # A run-time word may become anything; a glob only what its letters allow.
    return unknown and (re.search(r"[$`{]", word) is not None or fnmatchcase(pat.text, word))


def _has_option(pat: Pat, words: Sequence[tuple[str, bool]]) -> bool:
    if any(_is_word(pat, word, unknown=unknown) for word, unknown in words):
        return True
    if pat.text.startswith("--"):
        name = pat.text.partition("=")[0]
        long = [word.partition("=")[0] for word, _ in words if word.startswith("--") and len(word) > 3]
        return any(name.startswith(word) for word in long)
    clusters = "".join(word[1:] for word, _ in words if re.match(r"-[^-]", word))
    return len(pat.text) > 1 and all(letter in clusters for letter in pat.text[1:])


def _mentions(pats: Sequence[Pat], text: str) -> bool:
    """Return whether an unclear line has the words of a pattern, even with quotes, escapes or brackets in them."""
    text = re.sub(r"\\\n|\$\{?(?:ifs|@|\*)\}?", "", text.casefold())
    spellings = (text, re.sub(r"""[\\'"\[\]{},]""", "", text), re.sub(r"""['"]""", " ", text.replace("\\", "")))
    names = [base_name(pats[0].text), *(pat.text for pat in pats[1:] if not pat.text.startswith("-"))]
    forms = [re.escape(name.casefold()).replace(r"\*", r"[^\s/]*") for name in names if name != "*"]
    return all(any(re.search(rf"(?<!\w){form}(?!\w)", one) for one in spellings) for form in forms)


def grants(line: Line) -> tuple[str, ...]:
    """Return the rules that "always" would add: narrow patterns that cover exactly this line, or none."""
    found = tuple(dict.fromkeys(_grant(command) for command in line.commands))
    return found if found and allowed(line, found) else ()


def _grant(command: Command) -> str:
    argv = command.argv
    if not argv or argv[0] in _NEVER_GRANTED:
        return ""
    name = base_name(argv[0]) if is_bare(argv[0]) else argv[0]
    pair = " ".join((name, *argv[1:2]))
    wide = f"{name} *" if name in _GRANTED else f"{pair} *" if pair in _GRANTED_PAIRS else ""
    if wide and _matches(wide, command):
        return wide
    reads_program = _INTERPRETERS.fullmatch(name) and all(word.startswith("-") and len(word) < 3 for word in argv[1:])
    if command.unknown or reads_program or any(not word.isprintable() for word in argv):
        return ""
    return " ".join(shlex.quote(word) for word in argv)


def is_plain(line: Line) -> bool:
    """Return whether a line is a single command without assignments or writes, so that its text shows its effect."""
    around = line.possible or line.assignments or set(line.writes) - HARMLESS_TARGETS
    return not line.unclear and len(line.commands) == 1 and not around


def describe(line: Line) -> str:
    """Return one line for the user: the commands, the files written, and the part that is not understood."""
    runs = [" ".join(command.argv) for command in line.commands if command.argv]
    writes = [target for target in line.writes if target not in HARMLESS_TARGETS]
    parts = [("runs: ", runs), ("writes: ", writes), ("not understood: ", [line.unclear] if line.unclear else [])]
    return "; ".join(label + _listed(texts) for label, texts in parts if texts) or "runs nothing"


def _listed(texts: Sequence[str]) -> str:
    """Shorten texts, and escape characters that a terminal would obey instead of showing them."""
    several = list(dict.fromkeys(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…" for text in texts))
    shown = ", ".join(several[:8]) + (f" and {len(several) - 8} more" if len(several) > 8 else "")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)
