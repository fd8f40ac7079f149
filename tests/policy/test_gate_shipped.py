"""The shipped rules: what is asked about and refused without a rule of the user's."""

from __future__ import annotations

import pytest

from lmagent.policy.gate import Request, Rules, judge, sight

SHIPPED = Rules(workspace="/home/me/project")


def read(path: str) -> Request:
    return Request("read", "read", (path,))


def shell(line: str) -> Request:
    return Request("shell", "exec", (), line)


@pytest.mark.parametrize("mode", ["auto", "normal", "manual"])
@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "deploy/.env",
        ".env.production",
        "tls/server.pem",
        "server.key",
        ".ssh/id_rsa",
        "id_ed25519.pub",
        "credentials",
        "aws/credentials.json",
        ".netrc",
    ],
)
def test_a_file_that_may_hold_secrets_is_read_only_after_a_question(path, mode):
    verdict = judge(read(path), mode, SHIPPED)
    assert verdict.decision == "ask"
    assert "secrets" in verdict.reason
    assert judge(read(path), "auto", SHIPPED, [verdict.grant]).decision == "allow", "the answer always holds"


@pytest.mark.parametrize("path", [".env.example", "env.py", "id_map.py", "credentials.py", "keys.md", "src/key"])
def test_other_files_are_read_without_one(path):
    assert judge(read(path), "normal", SHIPPED).decision == "allow"


def test_always_for_one_secret_file_is_not_for_another():
    grant = judge(read(".env"), "auto", SHIPPED).grant
    assert judge(read("server.key"), "auto", SHIPPED, [grant]).decision == "ask"


def test_an_allowance_of_the_user_covers_a_secret_file_and_a_denial_forbids_it():
    assert judge(read(".env"), "normal", Rules(("read(.env)",), workspace="/w")).decision == "allow"
    assert judge(read(".env"), "normal", Rules(deny=("read(.env)",), workspace="/w")).decision == "deny"


def test_writing_a_secret_file_is_as_writing_any_other():
    assert judge(Request("write", "write", (".env",)), "auto", SHIPPED).decision == "allow"


def test_a_search_does_not_look_into_secret_files_and_lists_show_them():
    hides = sight(Request("grep", "read", (".",)), SHIPPED)
    assert hides is not None
    assert hides("deploy/.env")
    assert not hides("src/a.py")
    assert sight(Request("ls", "read", (".",)), SHIPPED) is None
    named = sight(Request("grep", "read", (".env",)), SHIPPED)
    assert named is not None
    assert not named(".env"), "the user was asked about it"
    allowed = sight(Request("grep", "read", (".",)), Rules(("effect:read(.env)",), workspace="/w"))
    assert allowed is not None
    assert not allowed(".env")


@pytest.mark.parametrize("mode", ["auto", "normal", "manual"])
@pytest.mark.parametrize(
    "line",
    [
        "rm -rf /",
        "rm -rf /*",
        "sudo rm -r -f /",
        "rm --recursive --force -- /",
        "rm -rf ~",
        "rm -fr ~/*",
        'rm -rf "$HOME"',
        "rm -rf ${HOME}/",
        "cd src && rm -Rf .",
        "rm -rf ./",
        "rm -rf ./*",
        "rm -rf $PWD",
        "rm -rf /home/me/project",
        "rm -rf /home/me/project/*",
        "bash -c 'rm -rf /'",
        "rm -rf build /",
        "mkfs.ext4 /dev/sda1",
        "mkfs -t xfs /dev/sdb",
        "dd if=/dev/zero of=/dev/sda bs=1M",
        ":(){ :|:& };:",
        "bomb() { bomb | bomb & }; bomb",
    ],
)
def test_a_command_that_wipes_everything_is_refused_in_every_mode_whatever_allows_it(line, mode):
    verdict = judge(shell(line), mode, Rules(("*",), workspace="/home/me/project"))
    assert (verdict.decision, "shipped" in verdict.reason) == ("deny", True)


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf build",
        "rm -rf build/*",
        "rm -rf ./build",
        "rm a.txt",
        "rm -f .",
        "rm -rf ../other",
        "echo 'rm -rf /'",
        "dd if=a.img of=b.img",
        "dd if=/dev/zero of=/dev/null count=1",
        "f() { g | g & }; f",
        "rm -rf /home/me/projects",
        "cd build && rm -rf *",
        "ls mkfs.md",
    ],
)
def test_a_command_that_deletes_a_part_is_judged_as_any_other(line):
    assert judge(shell(line), "auto", SHIPPED).decision == "allow"


def test_without_the_shipped_rules_the_mode_decides():
    assert judge(read(".env"), "normal", Rules()).decision == "allow"
    assert judge(shell("rm -rf /"), "auto", Rules()).decision == "allow"
