"""Real bash is the judge: it must see the words that are listed, and run nothing that is not."""

import os
import random
import shutil
import subprocess
import sys

import pytest

from lmagent.policy.commands import read

pytestmark = pytest.mark.long

BASH = shutil.which("bash")


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_static_words_are_the_words_that_bash_sees():
    rng = random.Random(7)
    quoted = """'x y'|"p q"|"\\$"|''|"a'b"|"\\a"|\\ |\\\\|\\$"""
    pieces = [*quoted.split("|"), "a", "B", "-", "=", "é", "#"]
    lines = [
        " ".join("a" + "".join(rng.choices(pieces, k=rng.randint(0, 5))) for _ in range(rng.randint(1, 5)))
        for _ in range(150)
    ]
    script = "\n".join(f"printf '%s\\0' {line}; printf '\\1\\0'" for line in lines)
    out = subprocess.run([BASH or "", "-c", script], capture_output=True, check=True).stdout.decode()
    seen = [tuple(record.split("\0")[:-1]) for record in out.split("\1\0")[:-1]]
    understood = 0
    for line, words in zip(lines, seen, strict=True):
        parsed = read(f"printf {line}")
        understood += not parsed.unclear
        assert parsed.unclear or parsed.commands[0].argv[1:] == words, line
    assert understood > 90


TOKENS = [
    "c1 ", "c2 ", "c3 ", "a ", "b", " ", ";", "\n", "&&", "||", "|", "&", "'", '"', "\\", "$x", "${x:-c3}", "$(", "(",
    ")", "`", "{ ", "}",
    "<<E\n", "\nE\n", "<<'E'\n", "E", "#", "!", "[", "]", "[[ ", " ]]", "((", "))", "if ", "; then ", "; fi",
    "for x in ", "; do ", "; done",
    "case a in a) ", ";; esac", "f(){ ", "; }", "f", "x=c2 ", ">o", "2>&1", "<<<", "<(", "\\\n", "{a,b}", "coproc ",
    "$'", "\\x63", "eval ",
    "command ", "\\`", '\\"', '$"', "1", "|&", "==", "=~ ", "+", "@", "function g ",
    "c1 | c2 | c3\n", "é", "\xa0", "\t", "..", "exec ",
]  # fmt: skip
# One write a record, or those of a pipeline mix: bash flushes at a line's end.
RECORD = "command_not_found_handle(){ printf '%s\\0' \"${@//$'\\n'/$'\\2'}\" $'\\1' >&9; return $R; }\n"


def _really_run(line: str, folder: str, status: str) -> list[tuple[str, ...]]:
    """The commands that bash runs for the line; there are none on the PATH, each is only noted down."""
    read, write = os.pipe()
    os.set_inheritable(write, True)
    script = f"exec 9>&{write} {write}>&-\n{RECORD}{line}"
    process = subprocess.Popen(
        [BASH or "", "-c", script], cwd=folder, env={"PATH": "/nonexistent", "R": status}, pass_fds=[write],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(write)
    try:
        process.wait(5)
        os.set_blocking(read, False)
        data = os.read(read, 65536)
    except (subprocess.TimeoutExpired, BlockingIOError):
        data = b""
    finally:
        process.kill()
        process.wait()
        os.close(read)
    text = data.decode("utf-8", "replace").replace("\2", "\n")
    return [tuple(one.split("\0")[:-1]) for one in text.split("\1\0")[:-1]]


@pytest.mark.skipif(BASH is None or sys.platform == "win32", reason="needs bash")
@pytest.mark.parametrize("seed", range(4))
def test_bash_runs_nothing_that_is_not_listed(seed, tmp_path):
    rng = random.Random(seed)
    compared = 0
    while compared < 60:
        few = [*rng.sample(TOKENS, rng.randint(3, 14)), "c1 ", "c2 "]
        line = "".join(rng.choices(few, k=rng.randint(2, 14)))
        parsed = read(line)
        if parsed.unclear:
            continue
        compared += 1
        for words in _really_run(line, str(tmp_path), rng.choice("01")):
            assert any(_could_be(command, words) for command in parsed.commands), (line, words)


def _could_be(command, words):
    known = min(command.unknown, default=len(command.argv))
    return (
        bool(command.argv)
        and words[:known] == command.argv[:known]
        and (bool(command.unknown) or words == command.argv)
    )
