"""Harmless options: the options that the final `*` of an allow rule covers besides operands.

A word that begins with a dash or a plus must be spelled out in the rule, or be listed here for its program. An option
is listed if the program, with it, runs no other program, loads no code and writes only the files that it is meant to
write.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lmagent.policy.grammar import names_in
from lmagent.policy.wrappers import LAUNCHERS, base_name

READERS = names_in(
    "ls cat head tail wc grep egrep fgrep pwd echo du df stat basename dirname realpath readlink which true false cut "
    "tr nl cmp comm md5sum sha1sum sha256sum uname whoami id sleep seq"
)
"""Programs that only read and print, whatever their options."""
_ANY = READERS | names_in("cd mkdir touch ps lsof pgrep free uptime printenv type")

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


def covers(argv: tuple[str, ...], spelled: int, unknown: frozenset[int], loose: frozenset[int]) -> bool:
    """Return whether a final `*` covers the words of a command from position `spelled` on."""
    start = 0
    while found := _LAUNCHER.match(" ".join((*argv[start : start + 3], ""))):
        start += found[0].count(" ")
    launcher = LAUNCHERS.get(base_name(argv[0]))
    unsure = launcher is not None and not start and (not launcher or not launcher.isdisjoint(argv))
    if unsure or any(at <= start for at in unknown) or start >= len(argv) or argv[start][:1] in ("-", "+"):
        return spelled >= len(argv) and not unknown
    moved = (frozenset(at - start for at in places) for places in (unknown, loose))
    return _covers(argv[start:], max(1, spelled - start), *moved)


def _covers(argv: tuple[str, ...], spelled: int, unknown: frozenset[int], loose: frozenset[int]) -> bool:
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
