"""What permission rules keep from the tools that walk."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmagent.policy.gate import Rules, judge

RULES = ["effect:read(secrets/**)", "*(secrets)", "*(./secrets/)"]
LEFT_OUT = "1 path left out by permission rules"


@pytest.fixture(params=RULES)
def guarded(request: pytest.FixtureRequest, hands, workspace: Path):
    (workspace / "secrets/deep").mkdir(parents=True)
    (workspace / "secrets/key.txt").write_text("TOPSECRET=1\n")
    (workspace / "secrets/deep/key.txt").write_text("TOPSECRET=2\n")
    (workspace / "open.txt").write_text("TOPSECRET is elsewhere\n")
    hands.rules = Rules(deny=(request.param,))
    return hands


@pytest.mark.parametrize("more", [{}, {"paths": ["."]}, {"paths": ["/workspace"]}, {"regex": True}])
def test_grep_does_not_read_what_is_denied_and_says_that_it_left_it_out(guarded, more) -> None:
    found = guarded("grep", pattern="TOPSECRET", **more)
    assert "secrets" not in found.content
    assert "open.txt\n1:" in found.content
    assert LEFT_OUT in found.content
    assert LEFT_OUT in guarded("grep", pattern="TOPSECRET=1").content


def test_glob_and_ls_do_not_name_what_is_denied(guarded) -> None:
    for found in (guarded("glob", pattern="**/*.txt"), guarded("glob", pattern="**/key.txt"), guarded("ls")):
        assert "secrets" not in found.content
        assert "key.txt\n" not in found.content
        assert LEFT_OUT in found.content
    assert "secrets" not in guarded("glob", pattern="*/").content


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("grep", {"pattern": "x", "paths": ["secrets"]}),
        ("grep", {"pattern": "x", "paths": ["open.txt", "./secrets/"]}),
        ("grep", {"pattern": "x", "paths": ["/workspace/secrets/deep"]}),
        ("glob", {"pattern": "secrets/**"}),
        ("glob", {"pattern": "/workspace/secrets/*"}),
        ("ls", {"path": "secrets"}),
        ("ls", {"path": "secrets/deep"}),
        ("read", {"path": "secrets/key.txt"}),
    ],
)
def test_a_call_that_begins_in_a_denied_folder_is_denied(guarded, tool, arguments) -> None:
    assert judge(guarded.request(tool, **arguments), "auto", guarded.rules).decision == "deny"


def test_a_link_to_a_denied_folder_leads_nowhere(guarded, workspace: Path) -> None:
    (workspace / "round").symlink_to(".")
    (workspace / "in").symlink_to("secrets")
    assert "secrets" not in guarded("grep", pattern="TOPSECRET", paths=["round"]).content
    assert judge(guarded.request("ls", path="in"), "auto", guarded.rules).decision == "deny"


def test_the_suggestion_for_a_missing_file_does_not_name_what_is_denied(guarded) -> None:
    assert "secrets" not in guarded.refused("read", path="key.tx").message


def test_without_rules_nothing_is_left_out(hands, workspace: Path) -> None:
    (workspace / "secrets").mkdir()
    (workspace / "secrets/key.txt").write_text("TOPSECRET=1\n")
    found = hands("grep", pattern="TOPSECRET")
    assert "secrets/key.txt" in found.content
    assert "left out" not in found.content


def test_a_folder_that_only_holds_denied_files_is_not_called_empty(hands, workspace: Path) -> None:
    (workspace / "a").mkdir()
    (workspace / "a/k.pem").write_text("x")
    hands.rules = Rules(deny=("ls(*.pem)",))
    assert hands("ls", path="a").content == f"a holds nothing else. {LEFT_OUT}."
