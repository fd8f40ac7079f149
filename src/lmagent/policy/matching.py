"""Match the patterns of rules on commands against a shell line.

A pattern is a list of words, compared one by one with the words of a command: `git status` is exactly that, a final `*`
matches all further operands and harmless options (`git log *`), `*` inside a word matches any text of that word, and
quotes are removed as in a shell. Allow rules are strict: the line must be clear, and they must match each of its
commands. Deny and ask rules are generous: they match one command that could be meant, in any folder, with its options
in any order.

An option is harmless if the program, with it, runs no other program, loads no code and writes only the files that it is
meant to write. Every other word that begins with a dash or a plus must be spelled out in an allow rule.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from lmagent.policy.commands import HARMLESS_TARGETS, Command, Line
from lmagent.policy.wrappers import LAUNCHERS, base_name, is_bare, names_in

_READERS = names_in(
    "ls cat head tail wc grep egrep fgrep pwd echo du df stat basename dirname realpath readlink which true false cut "
    "tr nl cmp comm md5sum sha1sum sha256sum uname whoami id sleep seq"
)
"""Programs that only read and print, whatever their options."""
_ANY = _READERS | names_in("cd mkdir touch ps lsof pgrep free uptime printenv type")

_GIT_SHOWN = (
    "abcdfghilmnpqrstuvwzABCDEFGILMPRSUW --oneline --stat --graph --all --decorate --name-only --name-status --cached "
    "--staged --no-color --color --since --until --after --before --author --grep --format --pretty --abbrev-commit "
    "--date --no-merges --merges --first-parent --follow --numstat --shortstat --patch --no-patch --word-diff --check "
    "--summary --reverse --max-count --ignore-all-space --minimal --unified --diff-filter --quiet --exit-code"
)
_CARGO = (
    "qvprj -- --release --all --all-targets --workspace --lib --bins --tests --examples --test --bin --features "
    "--no-default-features --all-features --quiet --verbose --package --no-run --check --message-format --locked "
    "--offline --frozen"
)
_GO = "v n x m u race short run count timeout json cover bench benchmem failfast tags".replace(" ", " -")
_NPM = "DEgs -- --save-dev --save-exact --depth --silent --json --all --production --no-audit --no-fund"
_SED, _AWK = "nErz --quiet --silent --regexp-extended", "- -F, -F: -F;"
_CC = "- -c -g -o -S -E -I -O -O0 -O1 -O2 -O3 -Wall -Wextra -Werror -std -lm"
_TAR = "cxtvzjJfCk --list --extract --create --file --gzip --exclude --directory --verbose --strip-components"
# The first word holds letters of short options, which may be clustered with each other and with numbers.
_HARMLESS = {
    "git status": "sbuvz -- --short --branch --porcelain --untracked-files --ignored --show-stash --long",
    "git diff": f"{_GIT_SHOWN} --", "git log": f"{_GIT_SHOWN} --", "git show": f"{_GIT_SHOWN} --",
    "git shortlog": f"{_GIT_SHOWN} --", "git describe": "- -- --tags --all --always --dirty --abbrev",
    "git branch": "arvlq --list --show-current --all --remotes --merged --no-merged --contains --sort --format",
    "git add": "Auvn -- --all --update --dry-run --verbose",
    "git commit": "maqvsF --message --all --amend --no-edit --quiet --signoff --allow-empty --author --date",
    "git checkout": "bq --", "git switch": "cq", "git stash": "um --include-untracked --message",
    "git push": "uqv --set-upstream --dry-run --tags", "git pull": "qv --rebase --ff-only",
    "git fetch": "pqvt --all --prune --tags --depth", "git merge": "mq --no-ff --ff-only --no-edit --abort --continue",
    "git rebase": "q --continue --abort --skip", "git tag": "amlnq --list --sort --annotate",
    "git ls-files": "comdszt -- --cached --others --modified --deleted --exclude-standard",
    "git rev-parse": "q --show-toplevel --abbrev-ref --short --verify", "git blame": "wLCM --",
    "git grep": "nilwEFPchIqveABC -- --cached --untracked --count --line-number --files-with-matches",
    "ip addr": "-", "ip link": "-", "ip route": "-",
    "git remote": "v --verbose", "git archive": "-", "git restore": "q -- --staged", "git worktree": "-",
    "rg": "nilcwsSvFouUNHPLaqxjtTgeAEBCmMrI -- --files --type --glob --hidden --no-ignore --context --count --color "
          "--files-with-matches --ignore-case --line-number --max-count --sort --json --multiline --word-regexp "
          "--fixed-strings --no-heading --stats --type-list --iglob --max-depth",
    "fd": "eHItdgs --extension --hidden --type --max-depth --glob",
    "find": "- -name -iname -path -ipath -type -maxdepth -mindepth -not -o -a -or -and -size -mtime -mmin -newer "
            "-print -print0 -ls -empty -prune -regex -iregex -perm -user -group -xdev -follow -L -H",
    "sort": "bdfghiMnrRuVkcstz, -- --reverse --numeric-sort --unique --key --field-separator --human-numeric-sort",
    "uniq": "cdiuDw --count --repeated --unique", "diff": "uqrNbBwiyac -- --brief --recursive --unified --color",
    "tree": "LadfihpsuDtrIP", "file": "bikL --brief --mime-type", "date": "uRId+ --utc --date --iso-8601",
    "jq": "rcnseSMjaC --arg --argjson --raw-output --compact-output --slurp --exit-status --sort-keys --null-input",
    "curl": "sSfLIivkXHmGAd --silent --show-error --fail --location --head --include --request --header --max-time "
            "--insecure --compressed --retry --connect-timeout",
    "test": "adefghknoprstuwxzGLNOS -eq -ne -lt -le -gt -ge -nt -ot -ef", "command": "vV", "printf": "- --",
    "sed": _SED, "awk": _AWK, "gawk": _AWK, "mawk": _AWK, "nawk": _AWK, "tar": _TAR, "gtar": _TAR, "bsdtar": _TAR,
    "make": "jksnBqiw --silent --keep-going --dry-run --always-make --jobs",
    "cmake": "BSGj --build --parallel --target",
    "ctest": "VjR --output-on-failure", "gofmt": "- -l -d -s -e", "go": f"- -{_GO}",
    "cargo": _CARGO, "npm": _NPM, "yarn": "- --silent --frozen-lockfile", "pnpm": "DEr --silent --frozen-lockfile",
    "pytest": "qxvsklmnraAfEXP --lf --ff --sw --maxfail --tb --durations --collect-only --co --no-header --no-summary "
              "--disable-warnings --last-failed --failed-first --stepwise --capture --verbose --quiet --exitfirst "
              "--cov --timeout --deselect --ignore --color",
    "ruff": "qvn --fix --check --diff --select --ignore --no-cache --quiet --statistics --output-format",
    "mypy": "- --strict --ignore-missing-imports --pretty --no-error-summary --show-error-codes",
    "black": "qlS --check --diff --quiet", "isort": "q --check --check-only --diff", "flake8": "- --max-line-length",
    **dict.fromkeys(names_in("gcc g++ cc c++ clang clang++"), _CC),
    "jest": "ti --testNamePattern --runInBand --verbose --silent --ci --passWithNoTests", "prettier": "lc --check",
    "tsc": "p --noEmit --pretty --strict --skipLibCheck", "eslint": "- --quiet --ext --max-warnings",
    "vitest": "t --run", "uv": "q --dev --frozen --locked --all-extras --extra --quiet",
    "pip": "reUq --upgrade --quiet --no-deps --editable --requirement",
    "docker": "aqlntd --all --quiet --format --filter --no-trunc --tail --follow --since --tag --no-cache "
              "--pull --build",
}  # fmt: skip

# Operands that a final `*` covers, for programs where it does not cover all.
_OPERANDS = {
    **dict.fromkeys(names_in("gcc g++ cc c++ clang clang++ rustc javac curl"), r"(?!@|.*%output\{).*"),
    **dict.fromkeys(names_in("make gmake cmake"), r"[^=]*|V=[01]"),
    "git": r"(?!ext::|create$).*", "ip": r"(?!e(?:xe?c?)?$).*",
}  # fmt: skip
_SCRIPTS = {
    "sed": r"(?:(?:\d+|\$)(?:,(?:\d+|\$))?)?[pdq=]|s([/,|])[\w .-]*\1[\w .-]*\1[gI\d]*",
    **dict.fromkeys(names_in("awk gawk mawk nawk"), r"\{ ?print \$\w+(?:, ?\$\w+)* ?\}"),
}
_NO_UNKNOWN = frozenset((*_OPERANDS, *_SCRIPTS, "tar", "gtar", "bsdtar", "uniq", "xxd")) - {"git"}
_SUBCOMMANDS = frozenset(("git", "ip"))
_LAUNCHER = re.compile(
    r"(?:(?:uv|poetry|pipenv|pdm|hatch|rye|pipx|conda|yarn) run|(?:bundle|pnpm|npm|yarn) exec) (?:-- )?"
    r"|(?:npx|bunx|uvx|(?:python|pypy)[\d.]* -m) "
)

_HARMLESS_VARIABLES = re.compile(
    r"(?:CI|DEBUG|LANG|LC_\w+|TZ|TERM|COLUMNS|NO_COLOR|FORCE_COLOR|RUST_BACKTRACE)=.*", re.S
)
_VALUED = frozenset(("-C", "-c", "-f", "--git-dir", "--work-tree", "--namespace", "--prefix", "--manifest-path"))

_GRANTED = _READERS | {"rg", "diff", "pytest"}
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
    return _covers_rest(argv, max(1, len(form.words)), frozenset(command.unknown), frozenset(command.loose))


def _covers(pat: Pat, word: str, at: int) -> bool:
    if at == 0 and "/" in word and is_bare(word) and "/" not in pat.text:
        word = base_name(word)
    if pat.glob is None:
        return pat.text == word
    if at == 0 and "/" in word and pat.text.count("/") != word.count("/"):
        return False
    dashed = word.startswith(("-", "+")) and word[0] != pat.text[0]
    return not dashed and ".." not in word.split("/") and pat.glob.fullmatch(word) is not None


def _covers_rest(argv: tuple[str, ...], spelled: int, unknown: frozenset[int], loose: frozenset[int]) -> bool:
    """Return whether a final `*` covers the words of a command from position `spelled` on."""
    start = 0
    while found := _LAUNCHER.match(" ".join((*argv[start : start + 3], ""))):
        start += found[0].count(" ")
    launcher = LAUNCHERS.get(base_name(argv[0]))
    unsure = launcher is not None and not start and (not launcher or not launcher.isdisjoint(argv))
    if unsure or any(at <= start for at in unknown) or start >= len(argv) or argv[start][:1] in ("-", "+"):
        return spelled >= len(argv) and not unknown
    moved = (frozenset(at - start for at in places) for places in (unknown, loose))
    return _covers_words(argv[start:], max(1, spelled - start), *moved)


def _covers_words(argv: tuple[str, ...], spelled: int, unknown: frozenset[int], loose: frozenset[int]) -> bool:
    name = base_name(argv[0])
    if name in ("uniq", "xxd") and sum(not word.startswith("-") for word in argv[1:]) > 1:
        return False
    if name in _ANY or (spelled >= len(argv) and not unknown):
        return True
    name = name if name in _HARMLESS else re.sub(r"[-.]?\d[\d.]*$", "", name)
    first = next((at for at, word in enumerate(argv) if at and not word.startswith("-")), len(argv))
    key = " ".join((name, *argv[first : first + 1]))
    if name in _SUBCOMMANDS and (first > 1 or (first >= spelled and key not in _HARMLESS)):
        return False
    listed = (_HARMLESS.get(key) or _HARMLESS.get(name) or "-").split()
    end = argv.index("--") if "--" in argv and "--" in listed else len(argv)
    if any(at < end or at == len(argv) == end for at in loose) or (unknown and name in _NO_UNKNOWN):
        return False
    if name in _SCRIPTS and not _has_harmless_script(name, argv[:end], spelled, listed):
        return False
    if name.endswith("tar") and spelled < 2 and not argv[1].startswith("-") and not _is_harmless(f"-{argv[1]}", listed):
        return False
    operand = re.compile(_OPERANDS.get(name, ".*"), re.DOTALL)
    for at in set(range(spelled, len(argv))) - unknown:
        word = argv[at]
        is_option = at < end and word.startswith(("-", "+")) and word != "-"
        if not (_is_harmless(word, listed) if is_option else operand.fullmatch(word)):
            return False
    return True


def _is_harmless(word: str, listed: Sequence[str]) -> bool:
    if word in ("--help", "--version") or word.partition("=")[0] in listed[1:]:
        return True
    if word.startswith("+"):
        return "+" in listed[0]
    letters = f"-[{re.escape(listed[0])}\\d,.]+"
    return listed[0] != "-" and re.fullmatch(letters, word) is not None and not word.startswith("--")


def _has_harmless_script(name: str, argv: tuple[str, ...], spelled: int, listed: Sequence[str]) -> bool:
    """Return whether the script of sed or awk is spelled out in the rule, or only prints and replaces."""
    options = [word for word in argv[1:] if word.startswith("-") and word != "--"]
    at = next((at for at, word in enumerate(argv) if at and not word.startswith("-")), len(argv))
    if any(not _is_harmless(word, listed) and word != "-i" for word in options):
        return False
    return at < spelled or (at < len(argv) and re.fullmatch(_SCRIPTS[name], argv[at]) is not None)


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
