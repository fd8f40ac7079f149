"""`lmagent sandbox exec`: a command in the sandbox, for scripts. Its output and exit status pass through."""

import os
import shutil
import time

import pytest

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")


def run(program, *arguments: str, **more):
    return program.run("sandbox", "exec", *arguments, **more)


def test_output_and_exit_status_pass_through(program):
    done = run(program, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_it_works_in_the_workspace_and_sees_nothing_else(program):
    (program.home / "secret").write_text("the secret")
    done = run(program, "--", "sh", "-c", f"cat a.txt; echo made >b.txt; cat {program.home}/secret")
    assert done.stdout == "alpha\n"
    assert "the secret" not in done.stdout + done.stderr
    assert (program.workspace / "b.txt").read_text() == "made\n"
    assert (program.workspace / "b.txt").stat().st_uid == os.geteuid()


def test_options_behind_the_command_belong_to_it(program):
    assert run(program, "echo", "--timeout", "-w", "x").stdout == "--timeout -w x\n"


def test_at_the_timeout_everything_is_killed_and_nothing_writes_any_more(program):
    began = time.monotonic()
    script = "(setsid sh -c 'while :; do date +%N >beat; sleep 0.05; done' &); sleep 60"
    done = run(program, "--timeout", "1", "--", "sh", "-c", script)
    assert done.returncode == 124
    assert time.monotonic() - began < 20
    beat = program.workspace / "beat"
    last = beat.read_text()
    time.sleep(0.5)
    assert beat.read_text() == last


@pytest.mark.parametrize("seconds", ["inf", "0", "-1", "soon", "1e12"])
def test_a_timeout_that_is_none_is_a_usage_error(program, seconds):
    done = run(program, f"--timeout={seconds}", "--", "true")
    assert done.returncode == 64
    assert "Traceback" not in done.stderr
    assert "--timeout" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "env", "why"),
    [
        (("-w", "/nowhere"), {}, "does not exist"),
        ((), {"SANDBOX": "bogus"}, "bogus"),
        ((), {"PATH": "/nowhere"}, "bwrap"),
    ],
)
def test_where_nothing_can_be_run_it_says_why_and_ends_with_125(program, arguments, env, why):
    done = run(program, *arguments, "--", "touch", "ran", env=env)
    assert done.returncode == 125
    assert why in done.stderr
    assert not (program.workspace / "ran").exists()


def test_a_command_that_is_not_there_ends_as_in_a_shell(program):
    assert run(program, "--", "no-such-program").returncode == 127


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_in_a_folder_of_another_user_is_told_so(program):
    shutil.chown(program.workspace, 1000, 1000)
    done = run(program, "--sandbox", "bubblewrap", "--", "true")
    assert done.returncode == 125
    assert "belongs to user 1000" in done.stderr
