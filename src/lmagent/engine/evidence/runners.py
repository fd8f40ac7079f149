"""Runners: whether a command is a check, and what of the project it checks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from lmagent.engine.evidence.line import Ran, is_harmless
from lmagent.engine.evidence.table import NONE_RAN, RUNNERS, TARGETS, Runner
from lmagent.engine.shellline.words import names_in

_MENTIONS = re.compile(
    r"\b(?:pytest|py\.test|unittest|tox|nox|make|npm|pnpm|yarn|bun|cargo|go|mvn|mvnw|gradle|gradlew|ctest|jest|vitest|mocha"
    r"|rspec|phpunit|dotnet|mix|swift|deno|node|ruff|mypy|pyright|basedpyright|flake8|pylint|py_compile|compileall|tsc"
    r"|eslint|bash|sh|shellcheck)\b"
)
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?|py")
_MODULES = names_in("pytest unittest tox nox mypy ruff pyright flake8 pylint py_compile compileall coverage")
_ONLY_MODULES = names_in("unittest py_compile compileall")
_PLACES = re.compile(r"/(?:usr/(?:local/)?)?s?bin/[^/]+|/(?:opt|nix)/(?:[^/]+/)*[^/]+")
_OWN_PLACES = re.compile(
    r"(?:\./)?(?:\.?venv|env)/(?:bin|Scripts)/[^/]+|(?:\./)?node_modules/\.bin/[^/]+|\./(?:gradlew|mvnw)"
)
_LAUNCHERS: dict[tuple[str, ...], str] = {
    ("uv", "run"): "--frozen --locked --offline -q --quiet --no-sync",
    ("poetry", "run"): "",
    ("pipenv", "run"): "",
    ("pdm", "run"): "",
    ("hatch", "run"): "",
    ("rye", "run"): "",
    ("npx",): "--no-install -y --yes",
    ("bunx",): "",
    ("pnpm", "exec"): "",
    ("npm", "exec", "--"): "",
    ("yarn", "exec"): "",
    ("bundle", "exec"): "",
    ("time",): "-p",
    ("nice",): "",
    ("xvfb-run",): "-a",
}
"""Programs that run the command behind them and end as it does, with the options that change nothing of that."""

_SPOKEN = re.compile(r"(?m)^(?!>|\(no output\)|make(?:\[\d+\])?: (?:Enter|Leav)ing)\s*\S")
"""A line of a run, besides those of `make` and `npm` themselves."""

_RAN_NONE = re.compile(r"\bran 0 tests|\bno tests? (?:ran|run|found|collected)\b|\bcollected 0 items", re.IGNORECASE)

_COUNTS = {name: runner.said for name, runner in RUNNERS.items() if runner.said}

_MANAGERS = ("npm", "pnpm", "yarn", "bun")


class Check(Struct, frozen=True):
    """A check that was run.

    Attributes:
        name: as a person calls it: `pytest`, `make test`.
        folder: where.
        narrow: what it was narrowed to; empty where it checks all.
        static: it only reads files.
        files: files it was given, relative to its folder; empty for all of them.
        suffixes: of the files that it reads; empty for all.
        said: what the output must say.
        languages: suffixes of the code that it can run; empty for any.
        target: it is a target or script of the project, which may run anything.
    """

    name: str
    folder: str
    narrow: str = ""
    static: bool = False
    files: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    said: str = ""
    languages: tuple[str, ...] = ()
    target: bool = False


class NoCheck(Struct, frozen=True):
    """It looks like a check and is none, and why."""

    name: str
    reason: str


def mentions(command: str, own: Sequence[str]) -> bool:
    """Whether a line may hold a check at all; most do not, and are not parsed."""
    return _MENTIONS.search(command) is not None or any(entry.split()[0] in command for entry in own if entry.split())


def recognise(ran: Ran, own: Sequence[str]) -> Check | NoCheck | None:
    """What a command checks; None for one that has nothing to do with checks.

    Args:
        ran: the command.
        own: commands that a person calls checks.
    """
    words = list(ran.argv)
    if not words:
        return None
    harmless = all(map(is_harmless, ran.assignments))
    if any(_same(words, entry) for entry in own):
        return Check(" ".join(words), ran.folder) if harmless else _tricked(words)
    bare = _unwrapped(words)
    if isinstance(bare, NoCheck) or bare is None:
        return bare
    found = _named(bare, ran.folder)
    return _tricked(bare) if isinstance(found, Check) and not harmless else found


def ran_none(check: Check, output: str, parts: bool = False) -> str:
    """Why a run that ended well has checked nothing, by what it says; empty where nothing speaks against it.

    With `parts`, other programs of the line print between what it says: then nothing may speak of no tests.

    Code under test can end a run before its time, and well: so a runner that counts its tests must have said how many.
    A target or script shows the command of its runner, as a rule, and then that one must have.
    """
    text = re.sub(r"\x1b\[[0-9;]*m", "", output)
    if parts and (none := _RAN_NONE.search(text)):
        return f"it says: {none[0]}"
    if check.said and re.search(check.said, text):
        skipped = re.search(r"Ran (\d+) tests?(?s:.*)OK \(skipped=(\d+)", text)
        return "all tests were skipped" if skipped and skipped[1] == skipped[2] else ""
    found = re.search(NONE_RAN, text, re.IGNORECASE)
    if found and not any(re.search(said, text) for said in _COUNTS.values()):
        return f"it says: {found[0]}"
    shown = () if check.said else (name for name in _COUNTS if re.search(rf"\b{re.escape(name)}\b", text))
    if check.said or any(re.search(_COUNTS[name], text) is None for name in shown):
        return "its output does not show that tests ran"
    return "it printed nothing" if check.target and not _SPOKEN.search(text) else ""


def is_missing(check: Check, code: int, output: str) -> bool:
    """Whether a run failed since there is no such program: that says nothing of the work."""
    module = rf"(?m)^\S*python[\d.]*: No module named {re.escape(check.name)}$"
    return (code == 127 and not check.target) or (code == 1 and re.search(module, output.strip()) is not None)


def _same(words: Sequence[str], entry: str) -> bool:
    return list(words) == entry.split()


def _tricked(words: Sequence[str]) -> NoCheck:
    return NoCheck(words[0], "it was given variables that may decide what it does")


def _unwrapped(words: list[str]) -> list[str] | NoCheck | None:
    """The command behind launchers, its program without the folder it lies in."""
    for _ in range(4):
        launcher = next((names for names in _LAUNCHERS if tuple(words[: len(names)]) == names), None)
        if words[0] == "timeout" and len(words) > 2 and re.fullmatch(r"\d+(?:\.\d+)?[smh]?", words[1]):
            words = words[2:]
        elif words[0] == "env":
            words = words[1:]
            while words and "=" in words[0] and is_harmless(words[0]):
                words = words[1:]
        elif launcher is not None:
            allowed, words = _LAUNCHERS[launcher].split(), words[len(launcher) :]
            while words and words[0] in allowed:
                words = words[1:]
        else:
            break
        if not words or words[0].startswith("-"):
            return None
    program = words[0]
    if "/" in program:
        base = program.rpartition("/")[2]
        if not (_PLACES.fullmatch(program) or _OWN_PLACES.fullmatch(program)):
            known = base in _MODULES or any(name.split()[0] == base for name in RUNNERS) or base == "make"
            return NoCheck(base, f"it is {program}, not the program that is installed") if known else None
        words = [base, *words[1:]]
    return words


def _named(words: list[str], folder: str) -> Check | NoCheck | None:
    program, rest = words[0], words[1:]
    if program in _ONLY_MODULES:
        return None
    if _PYTHON.fullmatch(program):
        while rest and re.fullmatch(r"-[Bbuq]+", rest[0]):
            rest = rest[1:]
        if len(rest) < 2 or rest[0] != "-m" or rest[1] not in _MODULES:
            return None
        program, rest = rest[1], rest[2:]
    if program == "coverage" and rest[:1] == ["run"]:
        rest = [word for word in rest[1:] if not re.match(r"--(?:source|branch|parallel-mode|append)\b", word)]
        if rest[:1] == ["-m"] and rest[1:2] and rest[1] in ("pytest", "unittest"):
            return _judge(rest[1], RUNNERS[rest[1]], rest[2:], folder)
        return None
    if program in ("make", "gmake"):
        return _make(rest, folder)
    if program in _MANAGERS and not (program == "bun" and rest[:1] == ["test"]):
        return _script(program, rest, folder)
    aliases = {"py.test": "pytest", "gradlew": "gradle", "mvnw": "mvn", "sh": "bash"}
    program = aliases.get(program, program)
    if program in ("node", "bash"):
        return _switched(program, rest, folder)
    for size in (3, 2, 1):
        name = " ".join([program, *rest][:size])
        if name in RUNNERS:
            return _judge(name, RUNNERS[name], rest[size - 1 :], folder)
    return None


def _switched(program: str, rest: list[str], folder: str) -> Check | NoCheck | None:
    """Programs that check only with an option."""
    for name, runner in RUNNERS.items():
        if name.startswith(f"{program} -") and any(word in runner.needs.split() for word in rest[:1]):
            return _judge(name, runner, rest, folder)
    return None


def _judge(name: str, runner: Runner, words: list[str], folder: str) -> Check | NoCheck:
    """Read the options."""
    operands, narrow = list[str](), list[str]()
    words = words[1:] if name == "vitest" and words[:1] == ["run"] else words
    words = words[1:] if name == "unittest" and words[:1] == ["discover"] else words
    at = 0
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            operands.append(word)
            at += 1
            continue
        width = 0 if word == "--" and runner is not RUNNERS["cargo test"] else _width(runner, word)
        if not width:
            return NoCheck(name, f"with {word} it may check nothing")
        if _is_narrowing(runner, word):
            narrow.append(" ".join(words[at : at + width]))
        at += width
    if runner.operands == "none" and operands:
        return NoCheck(name, f"with {operands[0]} it may check nothing")
    if runner.needs and not set(runner.needs.split()) & {*words}:
        return NoCheck(name, "it was not told to check")
    if runner.operands == "any" and not runner.needs and operands != ["./..."]:
        narrow.append(" ".join(operands) or "one folder")
    if runner.operands == "any" and runner.needs and not set(operands) <= {*runner.needs.split(), "clean"}:
        narrow.append(" ".join(operands))
    if runner.operands == "narrow" and operands not in ([], ["."], ["tests"], ["tests/"], ["test"], ["test/"]):
        narrow.append(" ".join(operands))
    files = tuple(one for one in operands if one != ".") if runner.operands == "files" else ()
    if name in ("bash -n", "node --check", "py_compile") and not files:
        return NoCheck(name, "it was given no file")
    return Check(
        name, folder, ", ".join(narrow), runner.kind == "static", files, runner.suffixes, runner.said, runner.languages
    )


def _width(runner: Runner, word: str) -> int:
    """How many words an option takes; 0 where it is not known to be harmless."""
    flags = {*runner.flags.split(), *runner.narrowing_flags.split()}
    valued = {*runner.valued.split(), *runner.narrowing.split()}
    if word == "--" or word in flags:
        return 1
    if word in valued:
        return 2
    name, equals, _ = word.partition("=")
    if equals and name in valued:
        return 1
    if word.startswith("--"):
        return 0
    if word[:2] in valued and len(word) > 2 and not equals:
        return 1
    return int(all(f"-{letter}" in flags for letter in word[1:]) and bool(word[1:]))


def _is_narrowing(runner: Runner, word: str) -> bool:
    name = word.partition("=")[0]
    return name in {*runner.narrowing.split(), *runner.narrowing_flags.split()} or (
        not word.startswith("--") and word[:2] in runner.narrowing.split()
    )


def _make(rest: list[str], folder: str) -> Check | NoCheck | None:
    """`make TARGET…`: the target's name says what it is for; a variable or `-n`, `-i`, `-f` may make it nothing."""
    targets = [word for word in rest if not word.startswith("-") and not word.isdigit()]
    wanted = [target for target in targets if target in TARGETS or re.split(r"[-_:.]", target)[0] in TARGETS]
    if not wanted:
        return None
    name = f"make {wanted[0]}"
    odd = [word for word in rest if word.startswith("-") and not re.fullmatch(r"-[sBk]+|-j\d*|--silent|--quiet", word)]
    if odd or any("=" in word for word in rest):
        return NoCheck(name, f"with {(odd or [word for word in rest if '=' in word])[0]} it may check nothing")
    return Check(name, folder, "" if any(target in TARGETS for target in wanted) else wanted[0], target=True)


def _script(program: str, rest: list[str], folder: str) -> Check | NoCheck | None:
    """`npm test`, `npm run check`, and the same of others."""
    words = [word for word in rest if word not in ("--silent", "-s", "--quiet")]
    named = words[1:2] if words[:1] in (["run"], ["run-script"]) else words[:1]
    if not named or re.split(r"[:_-]", named[0])[0] not in ("test", "tests", "check", "t", "verify", "ci"):
        return None
    if named == ["ci"] and words[:1] == ["ci"]:
        return None  # npm's own: it installs
    name = f"{program} {' '.join(words[: 1 + (named[0] != words[0])])}"
    extra = words[1 + (named[0] != words[0]) :]
    if extra:
        return NoCheck(name, f"with {extra[0]} it may check nothing")
    narrow = "" if named[0] in ("test", "tests", "check", "t", "verify", "ci") else named[0]
    return Check(name, folder, narrow, target=True)
