"""The sandbox of macOS: its rules as text. It runs nowhere else, and says so."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Limits, Sandbox
from lmagent.sandbox.git.guard import Protected
from lmagent.sandbox.seatbelt import Seatbelt, profile
from lmagent.testing.conformance import SandboxConformance


@pytest.mark.skipif(sys.platform != "darwin", reason="needs macOS: sandbox-exec")
class TestConformance(SandboxConformance):
    def make(self, workspace: Path) -> Sandbox:
        return Seatbelt(workspace, {}, Limits(), (), tuple)


def rules(workspace: str = "/Users/me/ws", protected: tuple[Protected, ...] = ()) -> list[str]:
    return profile(workspace, ["/private/tmp/own"], ["/opt/tool"], protected).splitlines()


def test_everything_is_denied_first_and_the_network_last():
    lines = rules()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    assert lines[-1] == "(deny network*)"


def test_the_workspace_and_the_own_folder_can_be_written_and_nothing_else():
    (line,) = [line for line in rules() if line.startswith("(allow file-write*")]
    assert line == '(allow file-write* (subpath "/Users/me/ws") (subpath "/private/tmp/own"))'
    assert all('(subpath "/")' not in line for line in rules())


def test_what_is_taken_away_comes_after_what_was_given():
    git = Path("/Users/me/ws/lib/.git")
    lines = rules(protected=(Protected(git, True), Protected(git / "config", False)))
    given = next(at for at, line in enumerate(lines) if line.startswith("(allow file-write*"))
    taken = [at for at, line in enumerate(lines) if line.startswith("(deny file")]
    assert min(taken) > given
    assert '(deny file-write* (subpath "/Users/me/ws/lib/.git/config"))' in lines
    assert any(line.startswith("(deny file-read* file-write*") and "/.lmagent" in line for line in lines)
    (fixed,) = [line for line in lines if line.startswith("(deny file-write-unlink")]
    for path in ("/Users/me/ws", "/Users/me/ws/lib", "/Users/me/ws/lib/.git", "/Users/me/ws/lib/.git/config"):
        assert f'(literal "{path}")' in fixed
    assert '(literal "/Users/me")' not in fixed


def test_names_are_quoted_so_that_they_cannot_be_rules():
    evil = 'a")(allow default)("\\'
    text = "\n".join(rules(workspace=f"/{evil}"))
    assert '(subpath "/a\\")(allow default)(\\"\\\\")' in text


@pytest.mark.skipif(sys.platform == "darwin", reason="needs a system that is not macOS")
def test_on_another_system_it_says_so_and_runs_nothing(tmp_path):
    sandbox = Seatbelt(tmp_path, {}, Limits(), (), tuple)
    report = anyio.run(sandbox.probe)
    assert (report.works, "another system" in report.reason) == (False, True)
    with pytest.raises(SandboxError, match="nothing was run"):
        anyio.run(sandbox.start, Exec(("true",)), print)
