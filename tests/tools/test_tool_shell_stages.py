"""The exit codes of a line's parts: what bash reports of them, and that nothing else of the line is changed by that."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shell_kit import Bench, play

from lmagent.engine.evidence.stages import marked, read
from lmagent.tools.shell_script import command_line
from lmagent.tools.shell_state import ShellState, learn

COMMANDS = [
    *(
        "true",
        "false",
        "sh -c 'exit 3'",
        "(exit 0)",
        "echo a",
        "echo $?",
        "cat",
        "cat nothing",
        "nosuch",
        "exit 4",
        "exit",
    ),
    *("cd sub", "cd nosuch", "set -e", "set -o pipefail", "set -u", "pwd", "test -d sub", "[ 1 -eq 2 ]", "tail -1"),
    *("echo ${PIPESTATUS[0]}", "echo ${PIPESTATUS[@]}", "export CI=1", "grep x", "(cd sub && false)", "echo b > out"),
    *("exit ${PIPESTATUS[0]}", "pytest() { echo no; }", "trap 'echo bye' EXIT", "echo $_"),
]
SILENT = ("true", "false", "sh -c 'exit 3'", "(exit 0)", "cat nothing", "nosuch", "test -d sub", "(cd sub && false)")


def ran(
    folder: Path, command: str, *, mark: bool, path: str = ""
) -> tuple[tuple[int, bytes, bytes, ShellState], object]:
    """What came of a line: code, output, messages and state; and the exit codes that it reported."""
    (folder / "sub").mkdir(parents=True)
    report, channel = os.pipe()
    try:
        done = subprocess.run(
            command_line(marked(command) if mark else command),
            cwd=folder,
            env={"PATH": path or os.environ["PATH"], "LMAGENT_CHANNEL": str(channel)},
            pass_fds=[channel],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        os.close(channel)
        heard = b"".join(iter(lambda: os.read(report, 1 << 16), b""))
    finally:
        os.close(report)
    state = ShellState()
    learned = learn(state, heard, str(folder), {"PATH": os.environ["PATH"]})
    return (done.returncode, done.stdout, done.stderr, state), learned.stages


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(COMMANDS), st.sampled_from([" | ", " && ", " || ", "; ", "\n"])), min_size=2))
def test_a_marked_line_does_and_prints_what_it_did_before(parts):
    # Whoever writes to what ended before may be killed by it, or not: in the middle of a pipe nobody writes.
    joined = (one + (mark if mark != " | " or one in SILENT else "; ") for one, mark in parts)
    command = "".join(joined).rstrip(" |&;\n")
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        plain, none = ran(Path(first) / "w", command, mark=False)
        same, _ = ran(Path(second) / "w", command, mark=True)
    shown = [text.replace(second.encode(), first.encode()) for text in same[1:3]]
    assert (same[0], shown[0], same[3]) == (plain[0], plain[1], plain[3])
    assert sorted(shown[1]) == sorted(plain[2])  # members of a pipeline speak at once, and in pieces
    assert none == ()


@pytest.mark.parametrize(
    ("command", "stages"),
    [
        ("sh -c 'exit 3' | sh -c 'exit 4' | cat", ((0, (3, 4, 0)),)),
        ("sh -c 'exit 3'; echo $?", ((0, (3,)), (1, (0,)))),
        ("sh -c 'exit 3' || true", ((0, (3,)), (1, (0,)))),
        ("true || sh -c 'exit 3'", ((0, (0,)),)),
        ("cd sub && sh -c 'exit 7' | tail -1; exit 2", ((0, (0,)), (1, (7, 0)))),
        ("sh -c 'exit 5' | cat\nexit ${PIPESTATUS[0]}", ((0, (5, 0)),)),
        ("set -e; sh -c 'exit 6' | cat; false; true", ((0, (0,)), (1, (6, 0)))),
        ("sh -c 'exit 9' | cat &", ()),
        ("f() { true; }; f | cat", ()),
        ("sh -c 'exit 9' | cat; kill -9 $$", ()),
        ("exec true | cat; true", ()),
    ],
)
def test_every_part_of_a_line_that_ran_reports_its_code(tmp_path, command, stages):
    assert ran(tmp_path / "w", command, mark=True)[1] == stages


def test_a_shell_that_is_no_bash_reports_none_and_does_the_same(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("cat", "tail", "sh"):
        (tools / name).symlink_to(shutil.which(name) or name)
    command = "sh -c 'exit 3' | cat; echo $?; sh -c 'exit 4' || echo no | tail -1; cd /nosuch && true"
    lines = [command_line(text) for text in (command, marked(command))]
    assert lines[0] != lines[1]
    env = {"PATH": str(tools)}
    plain, same = (subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, check=False) for line in lines)
    assert (plain.returncode, plain.stdout, plain.stderr) == (same.returncode, same.stdout, same.stderr)
    assert plain.stdout == b"0\nno\n"


AROUND = [
    *("pytest", "pytest -q", "(pytest)", "(pytest; true)", "(pytest || true)", "(true && pytest)", "pytest 2>&1"),
    *("true", "false", "cd sub", "cd ..", "(cd sub && pytest)", "exit 0", "exit", "set -e", "set -o pipefail"),
    *("tail -3", "cat", "tee out.txt", "grep x", "sed s/a/b/", "echo $?", "echo ${PIPESTATUS[0]}", "! pytest"),
    *("pytest() { true; }", "trap 'exit 0' EXIT", "PIPESTATUS=(0 0)", "__lmagent_codes='0 0'", "__lmagent_mark 0"),
    *("unset -f __lmagent_mark", "alias pytest=true", "hash -p /bin/true pytest", "exec true", "eval true"),
    *(
        "(true; __lmagent_mark 0)",
        "__lmagent_mark() { true; }",
        "if pytest; then true; fi",
        "PATH=/bin:$PATH",
        "true &",
    ),
]


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(AROUND), st.sampled_from([" | ", " && ", " || ", "; ", "\n"])), min_size=2))
def test_no_part_that_failed_is_ever_said_to_have_passed(parts):
    command = "".join(part for pair in parts for part in pair).rstrip(" |&;\n")
    with tempfile.TemporaryDirectory() as folder:
        tools = Path(folder) / "tools"
        tools.mkdir()
        (tools / "pytest").write_text("#!/bin/sh\nexit 1\n")
        (tools / "pytest").chmod(0o755)
        _, codes = ran(Path(folder) / "w", command, mark=True, path=f"{tools}:{os.environ['PATH']}")
    assert isinstance(codes, tuple)
    for one in read(command, ".", "/w", codes).ran:
        assert one.argv[:1] != ("pytest",) or one.code == 1, (command, codes)


def report(*codes: str) -> bytes:
    return b"".join(b"\0/w\n\0/w\n\0\0" + code.encode() + b"\0" for code in codes)


@pytest.mark.parametrize(
    "heard",
    [
        report("0 1", "0 0"),
        report("0 1") + b"x",
        report("0 0") + b"\0",
        report(*["0 0"] * 4),
        report("0 zero"),
        report("0"),
        report("0 0 "),
        report(""),
        report("0 0")[:-1],
    ],
)
def test_codes_that_something_else_wrote_too_are_not_believed(heard):
    assert learn(ShellState(), heard, "/w", {}).stages == ()


def test_codes_are_on_record_only_where_a_line_may_hold_a_check(tmp_path):
    checked, other, single, two = play(
        Bench(tmp_path), "false pytest | cat", "false | cat", "false pytest", "cat out; pytest --nothing | true"
    )
    assert checked.data["stages"] == ((0, (1, 0)),)
    assert "stages" not in other.data
    assert "stages" not in single.data
    assert len(two.data["stages"]) == 2
