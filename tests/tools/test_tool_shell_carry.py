"""What a session's shell carries from one command to the next, whatever the command does to its shell."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from shell_kit import Bench, during, logged, play
from testkit.amount import mostly_long

from lmagent.core import events as ev
from lmagent.core.sandbox import Exec
from lmagent.tools.shell import Shell, ShellNetwork, ShellRunner, shell_tool
from lmagent.tools.shell.carry import LIMIT, ShellState, command_line, learn

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# Folders


def test_a_link_that_leads_out_of_the_workspace_leaves_the_shell_at_the_last_good_folder(bench):
    (bench.workspace / "sub").mkdir()
    outputs = play(bench, "cd sub", "ln -s /usr/lib x; cd x; pwd", "pwd", "cd x/..; pwd -P", "pwd")
    assert outputs[1].content == (
        f"{bench.workspace}/sub/x\n"
        "[the folder /usr/lib is outside the workspace, or not UTF-8: the next command begins in sub]"
    )
    assert outputs[2].content == outputs[4].content == f"{bench.workspace}/sub"


def test_a_link_inside_the_workspace_is_kept_as_the_shell_calls_it(bench):
    (bench.workspace / "deep" / "er").mkdir(parents=True)
    outputs = play(bench, "ln -s deep/er short; cd short", "cd ..; pwd", "cd /workspace/deep", "pwd")
    assert outputs[0].content == "[the next command begins in short]"
    assert outputs[1].content.startswith(f"{bench.workspace}\n")
    assert outputs[3].content == f"{bench.workspace}/deep"


@pytest.mark.parametrize("folder", ["x", "../..", "/usr/lib", "no\0path"])
def test_a_log_that_ends_in_a_folder_outside_begins_at_the_top(tmp_path, folder):
    (tmp_path / "x").symlink_to("/usr/lib")
    saved = {"shell": {"cwd": folder, "exports": {"A": "evil"}}}
    (output,) = play(
        Bench(tmp_path, (ev.ToolFinished(call_id="c", tool="shell", status="ok", content="", data=saved),)),
        "pwd; echo [$A]",
    )
    assert output.content.startswith(f"{tmp_path}\n[]\n[lmagent was started anew")
    assert output.content.endswith("or outside the workspace: the command began in .]")


def test_a_folder_that_was_swapped_for_a_link_since_is_left_and_a_job_says_so_too(bench):
    (bench.workspace / "sub").mkdir()

    async def act() -> None:
        await bench.shell("cd sub")
        (bench.workspace / "sub").rmdir()
        (bench.workspace / "sub").symlink_to("/usr/lib")
        assert "the command began in ." in (await bench.shell("pwd", background=True)).content
        (bench.workspace / "sub").unlink()
        assert (await bench.shell("pwd")).content == str(bench.workspace)

    during(bench, act)


def test_a_folder_whose_name_cannot_be_recorded_is_not_carried(bench):
    outputs = play(bench, "mkdir $'\\xff'; cd $'\\xff'", "pwd")
    assert "not UTF-8: the next command begins in ." in outputs[0].content
    assert outputs[1].content == str(bench.workspace)
    logged(outputs[0])


# Variables


def test_a_path_without_the_system_folders_still_finds_the_shell_and_a_corrected_one_carries_over(bench):
    outputs = play(
        bench,
        'export PATH="$PWD/tools"',
        'echo "$PATH ${BASH_VERSION:+bash}"; ls',
        "export PATH=/usr/bin:/bin; ls / >/dev/null && echo found",
        'ls / >/dev/null && echo "$PATH"',
    )
    assert outputs[1].content.startswith(f"{bench.workspace}/tools bash\n")
    assert outputs[1].data["exit_code"] == 127
    assert outputs[2].content == "found"
    assert outputs[3].content == "/usr/bin:/bin"


@pytest.mark.parametrize(
    "line",
    [
        "export BASH_ENV=$PWD/exit.sh",
        "export ENV=$PWD/exit.sh",
        "set -eux -o posix; export SHELLOPTS",
        "set -eu; shopt -s failglob; export SHELLOPTS BASHOPTS",
        "mkdir lib; echo no >lib/libc.so.6; export LD_LIBRARY_PATH=$PWD/lib",
        "export POSIXLY_CORRECT=1",
        "export LC_ALL=nowhere 2>/dev/null",
        "export UID PPID BASHOPTS IFS=x",
    ],
)
def test_no_exported_variable_keeps_the_next_shell_from_running(bench, line):
    (bench.workspace / "exit.sh").write_text("exit 7")
    outputs = play(bench, f"export A=1; {line}", 'builtin echo "$A"; unset LD_LIBRARY_PATH', "echo $(echo a b)")
    assert outputs[1].content == ("" if "LD_LIBRARY" in line else "1"), (
        "the program that lists them must be able to run"
    )
    assert outputs[2].content == "a b"


def test_thousands_of_exports_are_not_carried_and_the_earlier_ones_stay(bench):
    outputs = play(
        bench,
        "export EARLY=1",
        f"for i in $(seq 1 {LIMIT // 8}); do export V$i=$i; done; mkdir sub; cd sub",
        'echo "$EARLY ${V5-none}"; pwd',
        "for i in $(seq 1 3000); do export W$i=$i; done",
        "echo $EARLY $W3000",
    )
    assert f"were not carried over: {LIMIT // 8 + 1} with" in outputs[1].content
    assert outputs[2].content == f"1 none\n{bench.workspace}/sub"
    assert outputs[4].content == "1 3000"


@pytest.mark.parametrize("size", ["100K", "1M", "8M"])
def test_a_variable_that_is_too_large_is_not_carried_and_the_folder_is(bench, size):
    outputs = play(bench, f"mkdir s; cd s; export A=1 B=$(head -c {size} /dev/zero | tr '\\0' x)", "echo $A${#B}; pwd")
    assert "the exported variables of this command" in outputs[0].content
    assert outputs[1].content == f"0\n{bench.workspace}/s"


def test_a_variable_that_is_not_utf8_is_not_carried_and_can_be_recorded(bench):
    outputs = play(bench, "export A=$'\\xff' B=é", "echo [$A] $B")
    assert outputs[0].content == "[not carried over, since not UTF-8: A]"
    assert outputs[1].content == "[] é"
    logged(outputs[0])


def test_names_that_a_script_of_ours_might_use_arrive_as_they_are(bench):
    line = "export n=5 name=6 c=7 s=8 i=9 left=10 bash=11 run=12 script=13"
    outputs = play(bench, line, "echo $n $name $c $s $i $left $bash $run $script", "echo $n $name")
    assert outputs[1].content == "5 6 7 8 9 10 11 12 13"
    assert outputs[2].content == "5 6"


def test_the_separators_are_as_a_shell_has_them_at_its_start(bench):
    (output,) = play(bench, 'set -u; old=$IFS; IFS=,; IFS=$old; for x in $(echo a b); do echo "<$x>"; done')
    assert output.content == "<a>\n<b>"


def test_nothing_of_ours_is_among_the_variables_that_programs_get(bench):
    outputs = play(bench, "set -a; A=1; env | grep -ci lmagent_; echo $#", "env | grep -ci -e lmagent_[a-z]*= -e posix")
    assert outputs[1].content.splitlines()[0] == "1"  # LMAGENT_SANDBOX
    assert outputs[0].data["shell"]["exports"] == 1


def test_the_proxy_of_a_command_is_its_own_and_not_that_of_an_earlier_one(bench):
    hosts = ("127.0.0.1:8080",)
    bench.runner = ShellRunner(bench.confined.get, lambda _: (), bench.spill, bench.jobs, ShellNetwork(hosts))
    outputs = play(
        bench, "echo $HTTP_PROXY; export HTTP_PROXY=http://stale https_proxy=stale", "echo $HTTP_PROXY $https_proxy"
    )
    proxy = outputs[0].content
    assert proxy.startswith("http://127.0.0.1:")
    assert outputs[1].content == f"{proxy} {proxy}"


# What a command does to its shell

HOSTILE = (
    *("IFS=E", "IFS=", "readonly IFS=EA", "IFS=0123456789", "set -e", "set -u", "set -f", "set -C", "set -a"),
    *("set -euo pipefail", "set -euxo pipefail", "set -o posix", "set -T; trap 'echo D' DEBUG", "set -p", "set -m"),
    "set -E; trap 'echo error' ERR",
    "shopt -s expand_aliases; alias printf=false jobs=false export=false case=false builtin=false return=false",
    "readonly n=1 c=1 s=1 name=1 __lmagent=1 __lmagent_command",
    "shopt -s failglob nullglob extglob dotglob nocasematch inherit_errexit xpg_echo lastpipe execfail",
    *("shopt -s compat31", "trap 'echo bye' EXIT", "trap 'echo \"$?\"' 0", "trap 'exit 9' EXIT; trap - EXIT"),
    *("trap '' EXIT", "trap 'cd /; (exit 8)' EXIT", "set -e; trap 'echo bye; unset EXPORTED' EXIT"),
    *("exec >/dev/null", "exec >&- 2>&-", "ulimit -f 0", "PWD=/x OLDPWD=/y", "unset PWD", "set -- a b c", "umask 777"),
    *("LC_ALL=C", 'cd() { command cd "$@"; }', "(trap 'echo sub' EXIT)"),
)
FUNCTIONS = " ".join(
    f"{name}() {{ echo {name}; return 5; }};"
    for name in (
        "printf",
        "jobs",
        "compgen",
        "wc",
        "pwd",
        "env",
        "command",
        "unset",
        "builtin",
        "set",
        "export",
        "case_",
    )
)


@pytest.mark.parametrize("line", mostly_long(HOSTILE, kept=12))
def test_the_report_and_the_exit_code_survive_what_a_command_does_to_its_shell(bench, line):
    (bench.workspace / "sub").mkdir()
    work = "\\export EXPORTED='a b' OTHER=$'x\\ny'; cd sub"
    for end, code in (("true", 0), ("(exit 3)", 3), ("exit 3", 3)):
        command = f"{line}\n{work}\n{end}"
        output, after = play(Bench(bench.workspace), command, 'printf "%s|%s" "$EXPORTED" "$OTHER"')
        plain = subprocess.run(["bash", "-c", command], cwd=bench.workspace, capture_output=True, check=False)
        assert output.data["exit_code"] == plain.returncode == code
        leaves = end == "exit 3" or (code and line.startswith("set -e; trap"))
        if leaves and re.search(r"^(set -e; )?trap '.*(EXIT|0)$", line):
            assert "did not get to its end" in output.content
            continue
        assert output.data["shell"]["cwd"] == "sub"
        assert after.content == "a b|x\ny"
        said = re.sub(r"(?m)^\++ ", "+ ", plain.stdout.decode() + plain.stderr.decode())
        told = re.sub(r"(?m)^\++ ", "+ ", output.content)
        assert said.strip() == re.sub(r"(?m)^\[(exit code \d+|the next command begins in sub)\]\n?", "", told).strip()


def test_functions_with_the_names_of_builtins_do_not_spoil_the_report(bench):
    (bench.workspace / "sub").mkdir()
    outputs = play(bench, f"export A=1; cd sub; sleep 60 & {FUNCTIONS} (exit 4)", "echo $A; pwd")
    assert outputs[0].content.startswith("[exit code 4]\n[1 background process was killed")
    assert outputs[1].content == f"1\n{bench.workspace}/sub"


def test_a_trap_that_a_command_sets_and_takes_back_is_bashs_own(bench):
    lines = (
        "trap 'echo failed' ERR; false; trap - ERR; false; trap 'echo bye' EXIT",
        "trap 'echo term' TERM; kill -TERM $$; trap - TERM; trap 'echo bye' EXIT; f() { trap 'echo f' EXIT; }; f",
        "trap 'echo bye' EXIT; trap 'echo no' NOSUCH 2>/dev/null; echo $?; (trap 'echo in' EXIT); x=$(trap 'echo c' 0)",
    )
    for line in lines:
        (output,) = play(Bench(bench.workspace), line)
        plain = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
        assert output.content == plain.stdout.strip() + (
            f"\n[exit code {plain.returncode}]" if plain.returncode else ""
        )


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("export A=2; exit 3", "[exit code 3]"),
        ("export A=2; kill -TERM $$", "[exit code 143]"),
        ("export A=2; exec no-such-program 2>/dev/null", "[exit code 127]"),
        ("export A=2; exec 2>&1; echo x # a comment", "x"),
        ("export A=2; echo x \\", "x \\"),
        ("export A=2; echo x &&\\\n", "eval: line 2: syntax error"),
        ("export A=2; echo 'x", ""),
        ("export A=2; cat 2>/dev/null <<X\nhi", "hi"),
        ("export A=2\r\nif true; then\r\n  cat <<X\r\nhi\r\nX\r\nfi\r", "hi"),
        ("-x; export A=2", "bash: line 1: -x: command not found"),
    ],
)
def test_odd_commands_run_as_in_a_shell_and_report(bench, command, told):
    outputs = play(bench, "export A=1", command, "echo $A")
    assert told in outputs[1].content
    unparsed = "syntax" in told or "'" in command
    assert outputs[2].content == ("1" if unparsed else "2")


@pytest.mark.parametrize("command", ["export A=2; exec echo replaced", "export A=2; kill -9 $$"])
def test_a_shell_that_does_not_live_to_report_says_that_nothing_was_carried(bench, command):
    outputs = play(bench, "export A=1", command, "echo $A")
    assert "the shell did not get to its end" in outputs[1].content
    assert outputs[1].content.endswith("folder and exported variables are as before this command]")
    assert outputs[2].content == "1"


def test_the_lines_in_messages_are_those_of_the_command(bench):
    (output,) = play(bench, "true\nno-such-program\ntrue")
    assert output.content == "bash: line 2: no-such-program: command not found"


def test_rules_see_a_command_with_crlf_as_it_is_run(bench):
    tool = shell_tool(ShellRunner(bench.confined.get, lambda _: (), bench.spill, bench.jobs))
    assert tool.command is not None
    assert tool.command(Shell("rm x\r\nls\r\n")) == "rm x\nls\n"
    assert tool.command(Shell("printf 'a\r\nb'\nls")) == "printf 'a\r\nb'\nls"


# A shell that is no bash


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("cd sub; echo out", 0),
        ("cd sub; exit 3", 3),
        ("set -eu; cd sub; false", 1),
        ("IFS=3; trap 'echo bye' EXIT; (exit 3)", 3),
    ],
)
def test_a_shell_that_is_no_bash_runs_the_command_and_carries_nothing(bench, command, code):
    (bench.workspace / "sub").mkdir()
    tools = bench.workspace / "tools"
    tools.mkdir()

    async def act() -> None:
        sandbox = await bench.confined.get()
        heard = {"stdout": b"", "channel": b""}

        def take(stream: str, piece: bytes) -> None:
            heard[stream] += piece

        line = command_line(f'echo "${{BASH_VERSION-none}}" "$#"; {command}', {"GIVEN": "a  b"})
        running = await sandbox.start(Exec(line, env={"PATH": str(tools)}, channel=True, merge=True), take)
        assert (await running.wait()).code == code
        assert heard["stdout"].startswith(b"none 0\n")
        assert (b"bye" in heard["stdout"]) == ("trap" in command)
        assert not learn(ShellState(), heard["channel"], sandbox.root, sandbox.environment).heard

    during(bench, act)
