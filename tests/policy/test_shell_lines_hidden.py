"""Rules that deny or ask, against names that are built, globbed, redirected away, or only known at run time."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from testkit.amount import mostly_long

from lmagent.policy.commands import read
from lmagent.policy.matching import allowed, denied

BASH = shutil.which("bash")

# Denied: what would run can be worked out of the line.
DENIED = [
    "</dev/null {x}</dev/null rm x", ">/dev/null {fd}>/dev/null git push origin", "x=1 {fd}>/dev/null rm z",
    "{x}<&- rm",
    "{x}<<<a rm x", "{x}>&2 rm x", "{x}<<E rm x\na\nE", "{a[0]}>/dev/null rm x",
    "sh -c '</dev/null {x}</dev/null rm x'",
    "/???/rm x", "[r]m x", "/bin/r* x", "r? x", "r[m] x", "{r,}m x && r{m,} x", "r{m,} x", "{rm,x} y", "r{m,{a,b}} x",
    "r{m..m} x", "{,rm} x", "[s]udo rm x", "{sudo,rm} x", "s{udo,} {rm,x}", "bash -{c,} 'r\\m x'", "sudo r{m,} x",
    "\"$x\"/rm y", "{git,push} x", "git p{ush,}", "timeout 5 r? x",
    "git -c alias.p=push p", "git -c alias.p='!r\\m' p x", "git -c alias.p='!git' p push",
    "git -c core.pager='r\\m x' log",
    "git submodule foreach 'r\\m x'", "git rebase -x 'r\\m x' a", "git rebase --exec='r\\m x' a", "git bisect run rm x",
    "git clone -c core.sshCommand='r\\m x' u", "git fetch --upload-pack='r\\m x' u", "git grep -O'r\\m' x",
    "GIT_SSH_COMMAND='r\\m x' git fetch", "PS4='$(r\\m x)' bash -xc true", "PAGER='r\\m x' man ls",
    "env EDITOR='r\\m' vi",
    "env a-b=1 rm x", "uv run rm x", "uv run --extra dev rm x", "poetry run rm x", "npx rm", "npx -c 'r\\m x'",
    "npm exec -- rm x", "shopt -s nullglob; zz* $a$b x", "bundle exec rm x", "tmux new -d 'r\\m x'", "uv run git push",
]  # fmt: skip
# Only the run will tell: no rule can say no, and none can say yes.
HIDDEN = [
    "a=r; b=m; $a$b x", "$(printf 'r%s' m) x", "`echo rx | tr x m` x", "\"$@\"", "$x y", "\"$x\" y", "\"r$x\" y",
    "eval \"$(echo cm0geA== | base64 -d)\"", "echo cm0geA== | base64 -d | bash", "bash <(echo x)", "source <(echo x)",
    ". /dev/stdin", "sh -s <x", "bash -c \"$x\"", "trap \"$x\" EXIT", "xargs -I{} {} x", "xargs bash -c",
    "find . -exec sh -c '{}' \\;", "BASH_ENV=<(echo 'r''x') bash -c true", "export BASH_ENV=\"$x\"", "ENV=$x sh -c ls",
    "env 'BASH_FUNC_ls%%=() { :; }' bash -c ls", "printf -v BASH_ENV x", "for BASH_ENV in x; do :; done",
    "git -c core.fsmonitor=x log", "git -c \"alias.p=$x\" p", "git -c \"$x\" p", "git config alias.p push",
    "git config --global alias.p '!x'", "git config core.hooksPath x", "git --exec-path=x p",
    "git --config-env=alias.p=X p",
    "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0=x git p", "git submodule foreach \"$x\"",
    "flock l bash", "echo x | parallel", "script -qc \"$x\"", "strace \"$x\"",
    "a=r; b=m; $a$b x; [ 1 > 2 ]", "echo xx | base64 -d | bash\ncat 'a", "[b]ash -c x", "x='a[$(p=r)]'; echo $((x))",
    "sh -c '[[ a ]]; $a$b x'", "alias x=\"$y\"; x", "echo >&'$(x)'", "`echo \\`x\\``", "PAGER=\"$x\" man ls",
    "source \"$x/stdin\"", "npx -c \"$x\"", "cat <<E >x\n" + "$a$b\n" * 5000 + "E",
]  # fmt: skip
PLAIN = [
    'ls -la', 'source venv/bin/activate', 'bash x.sh', 'bash -x a.sh', 'git config user.name x',
    'git config --get alias.x', 'for f in *; do cat "$f"; done', "cat >x <<'E'\n$x `a` | bash\nE", 'cat <<E\n$x\nE',
    'git checkout "$b"', 'timeout 5 make', 'uv run pytest -q', 'echo {a,b} {x}', 'x=$(date); echo $x',
    'test "$PAGER" = x', "sh -c 'ls; cat x'", 'set -eu; ls', 'cd "$d" && make', "find . -name '*.py' | xargs grep x",
    'echo \'{x}>a\' "{y}<b"',
]  # fmt: skip
DENY = ["rm *", "git push *"]


@pytest.mark.parametrize("command", DENIED)
def test_a_name_that_can_be_worked_out_is_denied(command):
    line = read(command)
    assert denied(line, DENY)
    assert not allowed(line, ["git *", "x *", "ls *", "env *", "timeout *"])


@pytest.mark.parametrize("command", HIDDEN)
def test_a_name_that_only_the_run_will_tell_makes_the_line_unclear(command):
    line = read(command)
    assert line.unclear
    assert not denied(line, ["yyy *"])


@pytest.mark.parametrize("command", PLAIN)
def test_ordinary_lines_hide_nothing_and_are_not_denied(command):
    line = read(command)
    assert (line.unclear, denied(line, DENY)) == ("", "")


@pytest.mark.parametrize(
    "command", ["'' x", '"" {a,b}', "{,} x", "[a]* " * 20, "'' ''", '"$x"/ y', "{{{,}}} x", "sudo '' x"]
)
def test_names_that_are_empty_or_odd_end_the_guessing(command):
    assert read(command).unclear


@pytest.mark.parametrize(
    "command",
    ["a|" * 8000, "a|" * 1900 + "a",
    "a;" * 8000, "a\n" * 8000, "$x " * 5000, "`a` " * 4000, "x=1 " * 4000, "<<<a " * 3000,
     "a|b|c|d\n" * 600, "bash -c 'a;b' ;" * 1000, "find " + "-exec a \\; " * 1400, "tmux a " * 2000, "{a," * 5000,
     "echo " + "{a,b}" * 3000, "npx -a uv run -b " * 900, "echo " + "{a,b} " * 2500, "$(a) " * 3000, "\"$(a)\"" * 2500,
     "git -c alias.a='!git -c alias.b=c d' " * 300, "[a]* " * 3000, "{x}>a " * 2500, "eval " * 3000, "a $(" * 300],
)  # fmt: skip
def test_a_line_that_runs_very_much_is_read_in_bounded_steps(command):
    line = read(command)
    assert len(line.commands) + len(line.possible) <= 1100
    assert len(line.commands) < 900 or line.unclear


def test_ordinary_lines_of_the_largest_size_are_clear():
    assert read("cat >x <<'E'\n" + "some | text $x\n" * 1000 + "E").unclear == ""
    assert read("git log --oneline -5 src/a.py && ls -la 'x y' | head -3\n" * 100).unclear == ""


PIECES = [
    "{x}>/dev/null ", "{fd}</dev/null ", "{fd}<<<a ", "</dev/null ", ">/dev/null ", "2>&1 ", "c3", "c{3,} ", "{c,}3 ",
    "c? ", "[c]3 ",
    "{c3,x} ", "{,c3} ", "c{1..3} ", " ", "a ", "\"$p\"", "$p$q ", "p=c q=3; ", "; ", " && ", " | ", "\n", "eval ",
    "bash -c ", "bash ",
    "echo ", "echo c3 | ", "'", '"', "$(", ")", "`", "env ", "env a-b=1 ", "command ", "exec ", "( ", "{ ", "; }",
    "sh -c ",
    "xargs ", "BASH_ENV=<(echo c3) ", "bash <(", "source ", "<(echo 'c''3') ", "printf 'c%s' 3", "if ", "; then ",
    "; fi", "x=1 ", "{x} ",
    "\\", "c'3' ", "./bin/", "*/", "timeout 5 ", "PS4='$(c3)' ", "set -x; ", "[[ ", " ]] ", "${p}3 ", "! ",
]  # fmt: skip


@pytest.mark.skipif(BASH is None or sys.platform == "win32", reason="needs bash")
@pytest.mark.parametrize("seed", mostly_long(range(4)))
def test_bash_runs_no_denied_program_unseen(seed, tmp_path):
    """Random lines with a harmless program of that name: where bash runs it, the line is denied or told apart."""
    _stubs(tmp_path)
    rng = random.Random(seed)
    ran = 0
    for _ in range(250):
        few = [*rng.sample(PIECES, rng.randint(3, 12)), "c3 "]
        line = "".join(rng.choices(few, k=rng.randint(2, 9)))
        if "c" not in line or not _ran(line, tmp_path):
            continue
        ran += 1
        parsed = read(line)
        assert denied(parsed, ["c3 *"]) or parsed.unclear, line
        assert not allowed(parsed, ["c1 *", "echo *"]), line
    assert ran > 10


def _stubs(folder: Path) -> None:
    (folder / "bin").mkdir()
    for name in ("c1", "c3"):
        stub = folder / "bin" / name
        stub.write_text(f'#!/bin/sh\necho {name} >>"$LOG"\n')
        stub.chmod(0o755)


def _ran(line: str, folder: Path) -> bool:
    """Whether bash runs c3 for the line. A log of its own, for what runs on in the background writes late."""
    log = folder / f"log{len(list(folder.glob('log*')))}"
    log.touch()
    process = subprocess.Popen(
        [BASH or "", "-c", line], cwd=folder, start_new_session=True,
        env={"PATH": f"{folder}/bin:/usr/bin:/bin", "LOG": str(log)},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
    return "c3" in log.read_text()


@pytest.mark.skipif(BASH is None or sys.platform == "win32", reason="needs bash")
@pytest.mark.parametrize(
    "line",
    ["</dev/null {x}</dev/null c3 x", "x=1 {fd}>/dev/null c3", "{x}<<<a c3", "*/c3 x", "./bi?/c3", "bash c3",
    "bash -e ./bin/c3 x", "source c3", "{c,}3; c{3,}", "{,c3} x",
     "a=c; b=3; $a$b x", "$(printf 'c%s' 3)", "eval \"$(echo YzMK | base64 -d)\"", "echo YzMK | base64 -d | bash",
     "bash <(echo c3)", "source <(echo c3)", "BASH_ENV=<(echo 'c''3') bash -c true", "PS4='$(c\\3)'; set -x; true",
     "env a-b=1 c3", "env 'BASH_FUNC_ls%%=() { c3; }' bash -c ls"],
)  # fmt: skip
def test_what_bash_really_runs_in_disguise_is_seen(line, tmp_path):
    _stubs(tmp_path)
    assert _ran(line, tmp_path)
    parsed = read(line)
    assert denied(parsed, ["c3 *"]) or parsed.unclear
    assert not allowed(parsed, ["x *", "echo *", "env *"])
