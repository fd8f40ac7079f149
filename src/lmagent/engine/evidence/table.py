"""Table: the programs that check a project, and the options with which they still do.

An option that is not listed makes a run no check: it may list tests instead of running them, leave some out, or let a
failure pass. Where a program says how many tests it ran, the run counts only when it says so (`said`).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from lmagent.engine.shellline.words import names_in

Kind = Literal["test", "static"]
Operands = Literal["narrow", "files", "none", "any"]


class Runner(Struct, frozen=True):
    """One way to check.

    Attributes:
        kind: `test` runs the project, `static` only reads it.
        flags: options without a value that change nothing of what is checked; letters of clusters too.
        valued: the same with a value.
        narrowing: options with which only a part is checked.
        narrowing_flags: the same without a value.
        needs: options of which one must be there.
        operands: what else may stand there: parts of the tests, files, nothing, anything.
        said: what the output must say where tests ran; empty where that differs from project to project.
        suffixes: of the files that a static check reads.
        languages: suffixes of the code that it can run; empty for any.
    """

    kind: Kind = "test"
    flags: str = ""
    valued: str = ""
    narrowing: str = ""
    narrowing_flags: str = ""
    needs: str = ""
    operands: Operands = "narrow"
    said: str = ""
    suffixes: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()


_PY = (".py", ".pyi")
_JS = (".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".mts", ".cts")
_SH = (".sh", ".bash")
_C = (".c", ".h", ".cc", ".cpp", ".hpp", ".cxx")
_JVM = (".java", ".kt", ".kts", ".scala", ".groovy")
CODE = (*_PY, *_JS, *_C, *_JVM, ".rs", ".go", ".rb", ".php", ".cs", ".fs", ".ex", ".exs", ".swift", ".vue", ".svelte")
"""Suffixes of code that some runners run and others do not."""

_PYTEST = Runner(
    languages=(*_PY, *_C),
    flags="-q -qq -v -vv -vvv -x -s -l --quiet --verbose --exitfirst --showlocals --full-trace --no-header --no-cov "
    "--strict --strict-markers --strict-config --ff --failed-first --nf --new-first --cov "
    "--disable-warnings --disable-pytest-warnings",
    valued="--tb -r --maxfail --durations --durations-min -n --numprocesses --dist --timeout --cov --cov-report "
    "--color --junitxml --junit-xml --log-level -W --import-mode --show-capture --capture --cov-fail-under --verbosity",
    narrowing="-k -m",
    narrowing_flags="--lf --last-failed --sw --stepwise",
    said=r"\b[1-9]\d* passed\b",
)
_UNITTEST = Runner(
    languages=(*_PY, *_C),
    flags="-v -q -f -b --verbose --quiet --failfast --buffer --locals",
    narrowing="-k -s -p -t --start-directory --pattern --top-level-directory",
    said=r"\bRan [1-9]\d* tests?\b",
)
_CARGO = Runner(
    languages=(".rs", *_C),
    flags="-q -v --quiet --verbose --all --workspace --all-targets --all-features --no-default-features --release -r "
    "--locked --offline --frozen --no-fail-fast --nocapture",
    valued="-j --jobs --features --color --profile --test-threads",
    narrowing="-p --package --test --exclude --example --bench --bin",
    narrowing_flags="--lib --bins --tests --doc --examples",
    said=r"\b[1-9]\d* passed\b",
)
_MAVEN = Runner(
    languages=_JVM,
    flags="-q -B -o -U -e -ntp --quiet --batch-mode --offline --no-transfer-progress",
    valued="-T --threads",
    operands="any",
    needs="test verify package install check build",
)
_JEST = Runner(
    languages=(*_JS, ".vue", ".svelte"),
    flags="--ci --coverage --silent --verbose --runInBand -i --no-cache --colors --bail -b --run",
    valued="--maxWorkers -w --reporter --reporters",
    narrowing="-t --testNamePattern --testPathPattern -o --onlyChanged",
    said=r"Tests:?\s.*?\b[1-9]\d* passed\b",
)

RUNNERS: dict[str, Runner] = {
    "pytest": _PYTEST,
    "unittest": _UNITTEST,
    "tox": Runner(
        languages=(*_PY, *_C), flags="-q -v -r --recreate", valued="-p --parallel", narrowing="-e -m", operands="none"
    ),
    "nox": Runner(
        languages=(*_PY, *_C), flags="-v -r -R --reuse-existing-virtualenvs", narrowing="-s -t -e -k", operands="none"
    ),
    "cargo test": _CARGO,
    "cargo nextest run": _CARGO,
    "go test": Runner(
        languages=(".go", *_C),
        flags="-v -race -cover -a -failfast",
        valued="-count -timeout -parallel -p -cpu -covermode -coverprofile -tags -shuffle",
        narrowing="-run -skip",
        narrowing_flags="-short",
        operands="any",
        said=r"(?m)^(?:ok\s+\S+\s+(?!.*\[no tests? )|PASS$)",
    ),
    "mvn": _MAVEN,
    "gradle": Runner(
        languages=_JVM,
        flags="-q -i --quiet --info --stacktrace --no-daemon --offline --parallel --continue --rerun-tasks",
        operands="any",
        needs="test check build",
        narrowing="--tests",
    ),
    "ctest": Runner(
        languages=_C,
        flags="-V -VV --verbose --output-on-failure --progress --schedule-random",
        valued="-j --parallel --test-dir --timeout -C --build-config",
        narrowing="-R --tests-regex -L -I",
        operands="none",
        said=r"tests passed, 0 tests failed out of [1-9]",
    ),
    "node --test": Runner(
        languages=_JS,
        flags="--test --experimental-test-coverage --enable-source-maps",
        valued="--test-reporter --test-concurrency --test-timeout",
        narrowing="--test-name-pattern",
        narrowing_flags="--test-only",
        needs="--test",
        said=r"(?m)^(?:# |\W{1,3} ?)pass [1-9]",
    ),
    "jest": _JEST,
    "vitest": _JEST,
    "mocha": Runner(
        languages=_JS,
        flags="--exit --recursive -b --bail --color --colors",
        valued="--reporter -R --timeout -t",
        narrowing="-g --grep -f --fgrep",
        said=r"\b[1-9]\d* passing\b",
    ),
    "rspec": Runner(
        languages=(".rb",),
        flags="--color --fail-fast",
        valued="-f --format",
        narrowing="-e -t",
        said=r"\b[1-9]\d* examples?, 0 failures",
    ),
    "phpunit": Runner(
        languages=(".php",),
        flags="--testdox --stop-on-failure --verbose",
        valued="--colors",
        narrowing="--filter --group --testsuite",
        said=r"OK \([1-9]\d* tests?",
    ),
    "dotnet test": Runner(
        languages=(".cs", ".fs"),
        flags="--no-restore --nologo",
        valued="-c --configuration -v --verbosity --logger",
        narrowing="--filter",
        said=r"Passed:\s+[1-9]|Passed!",
    ),
    "mix test": Runner(
        languages=(".ex", ".exs"),
        flags="--trace --cover",
        valued="--seed",
        narrowing="--only",
        said=r"\b[1-9]\d* tests?, 0 failures",
    ),
    "swift test": Runner(
        languages=(".swift", *_C),
        flags="--parallel",
        narrowing="--filter",
        said=r"Executed [1-9]\d* tests?, with 0 failures",
    ),
    "deno test": Runner(
        languages=_JS,
        flags="-A --allow-all --allow-read --allow-env --quiet -q",
        narrowing="--filter",
        said=r"\b[1-9]\d* passed",
    ),
    "bun test": Runner(
        languages=_JS, flags="--coverage --bail", valued="--timeout", narrowing="-t", said=r"\b[1-9]\d* pass\b"
    ),
    # What only reads the project.
    "ruff check": Runner(
        "static", flags="-q --quiet --no-cache", valued="--output-format", operands="files", suffixes=_PY
    ),
    "mypy": Runner(
        "static",
        flags="--strict --ignore-missing-imports --pretty --show-error-codes --no-incremental",
        valued="--python-version",
        operands="files",
        suffixes=_PY,
    ),
    "pyright": Runner("static", flags="--stats --warnings", operands="files", suffixes=_PY),
    "basedpyright": Runner("static", flags="--stats --warnings", operands="files", suffixes=_PY),
    "flake8": Runner("static", flags="-q --quiet -v", operands="files", suffixes=_PY),
    "pylint": Runner("static", flags="-v --verbose", valued="-j --jobs", operands="files", suffixes=_PY),
    "py_compile": Runner("static", flags="-q", operands="files", suffixes=_PY),
    "compileall": Runner("static", flags="-q -qq -f", operands="files", suffixes=_PY),
    "tsc": Runner("static", flags="--noEmit --pretty", operands="none", suffixes=_JS),
    "eslint": Runner(
        "static", flags="--quiet --no-cache", valued="--max-warnings --ext", operands="files", suffixes=_JS
    ),
    "node --check": Runner("static", flags="--check -c", needs="--check -c", operands="files", suffixes=_JS),
    "bash -n": Runner("static", flags="-n", needs="-n", operands="files", suffixes=_SH),
    "shellcheck": Runner("static", flags="-x", valued="-s -f", operands="files", suffixes=_SH),
    "cargo check": Runner("static", flags=_CARGO.flags, valued=_CARGO.valued, operands="none", suffixes=(".rs",)),
    "cargo clippy": Runner("static", flags=_CARGO.flags, valued=_CARGO.valued, operands="none", suffixes=(".rs",)),
    "cargo build": Runner("static", flags=_CARGO.flags, valued=_CARGO.valued, operands="none", suffixes=(".rs",)),
    "go vet": Runner("static", flags="-v", operands="any", suffixes=(".go",)),
    "go build": Runner("static", flags="-v", operands="any", suffixes=(".go",)),
}
"""By the words that name them, behind launchers and the folder of the program."""

TARGETS = names_in("check test tests testall test-all check-all verify ci unittest unittests")
"""What a project calls its own check: targets of make, scripts of package.json."""

NONE_RAN = (
    r"no tests? (?:were |was )?(?:ran|run|found|collected|to run|files? found|specified|executed)|no test files"
    r"|\bcollected 0 items|\bran 0 tests|nothing to be done for|is up to date\b|0 tests? (?:passed|ran|executed)"
    r"|found no tests|skipping tests|tests are skipped"
)
"""What a run says that checked nothing, whatever ran it."""
