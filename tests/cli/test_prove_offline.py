"""`lmagent prove-offline COMMAND`: which addresses beyond this machine it tried, for people and scripts."""

import json
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="watches by seccomp: this is not Linux")


def test_the_command_line_lists_what_was_tried_and_by_whom(program):
    script = "import socket; socket.socket().connect_ex(('192.0.2.1', 80)); print('done')"
    done = program.run("prove-offline", "--", sys.executable, "-c", script)
    assert (done.returncode, done.stdout) == (1, "done\n")
    assert "1 × tcp 192.0.2.1:80" in done.stderr
    assert "1 connection beyond this machine tried" in done.stderr
    quiet = program.run("prove-offline", "--json", "--", "sh", "-c", "exit 7")
    assert (quiet.returncode, json.loads(quiet.stdout)) == (7, {"attempts": []})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--allow", "localhost:80", "--", "true"), "give its address"),
        (("--allow", "192.0.2.1", "--", "true"), "the port is missing"),
        (("--allow", "192.0.2.1:80"), "is for a COMMAND"),
        (("--", "no-such-program"), "no-such-program: No such file"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(program, arguments, said):
    done = program.run("prove-offline", *arguments)
    assert done.returncode != 0
    assert said in done.stderr
