"""`lmagent tool call` holds to the permission mode and rules of the user."""

from contextlib import ExitStack

from program import clear
from terminal import Terminal

WRITE = '{"path": "d", "content": "x\\n"}'


def test_a_deny_rule_binds_a_call_of_the_user_too(program):
    run = program.run("tool", "call", "write", WRITE, "--yes", env={"LMAGENT_PERMISSION_DENY": "write"})
    assert run.returncode == 1
    assert "the rule deny 'write' forbids it" in clear(run)
    assert not (program.workspace / "d").exists()


def test_what_a_deny_rule_hides_is_left_out_of_a_search(program):
    (program.workspace / "secret.txt").write_text("alpha too\n")
    run = program.run(
        "tool", "call", "grep", '{"pattern": "alpha"}', env={"LMAGENT_PERMISSION_DENY": "grep(secret.txt)"}
    )
    assert "a.txt" in run.stdout
    assert "secret" not in run.stdout


def test_a_call_that_needs_an_approval_is_refused_without_a_terminal_and_done_with_yes(program):
    refused = program.run("tool", "call", "write", WRITE)
    assert refused.returncode == 1
    assert "normal mode asks before writing files" in clear(refused)
    assert "--yes" in refused.stderr
    assert not (program.workspace / "d").exists()
    assert program.run("tool", "call", "write", WRITE, "--yes").returncode == 0
    assert (program.workspace / "d").read_text() == "x\n"


def test_a_terminal_asks_before_a_call_and_takes_no_for_an_answer(program):
    with ExitStack() as stack:
        terminal = Terminal(program.workspace, "", "tool", "call", "write", WRITE)
        stack.push(terminal)
        terminal.wait_for("Allow this call?")
        terminal.enter("n")
        assert terminal.ended() == 1
        assert not (program.workspace / "d").exists()
        agreed = Terminal(program.workspace, "", "tool", "call", "write", WRITE)
        stack.push(agreed)
        agreed.wait_for("Allow this call?")
        agreed.enter("y")
        assert agreed.ended() == 0
    assert (program.workspace / "d").read_text() == "x\n"


def test_a_command_that_fails_fails_the_call_and_shows_its_output(program):
    run = program.run("tool", "call", "shell", '{"command": "echo seen; exit 3"}', "--yes")
    assert run.returncode == 1
    assert "seen" in run.stdout
