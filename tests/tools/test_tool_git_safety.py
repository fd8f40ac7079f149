"""What a repository must not do to whoever asks git about it, and what there is without one."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from git_kit import Repo

from lmagent.core.errors import SandboxError
from lmagent.testing.fakes import FakeClock, FakeSandbox


@pytest.fixture
def bare(workspace: Path) -> Repo:
    return Repo(workspace)


@pytest.fixture
def empty(bare: Repo) -> Repo:
    bare.git("init", "-q", "-b", "main")
    return bare


@pytest.fixture
def repo(empty: Repo) -> Repo:
    empty.write("a.txt")
    empty.git("add", "a.txt")
    empty.git("commit", "-qm", "first")
    return empty


# --- what a repository must not do ---------------------------------------------------------------------------------


def test_hooks_and_programs_that_a_repository_names_are_not_run(repo: Repo) -> None:
    ran = repo.workspace / "ran"
    program = repo.write("program", f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    for hook in (
        "pre-commit",
        "post-commit",
        "commit-msg",
        "post-checkout",
        "post-index-change",
        "reference-transaction",
    ):
        repo.write(f".git/hooks/{hook}", program.read_text()).chmod(0o755)
    repo.git("config", "core.fsmonitor", str(program))
    repo.git("config", "diff.external", str(program))
    repo.git("config", "diff.odd.textconv", str(program))
    repo.git("config", "gpg.program", str(program))
    repo.git("config", "commit.gpgSign", "true")
    repo.git("config", "core.pager", str(program))
    repo.git("config", "core.editor", str(program))
    repo.write(".git/info/attributes", "*.txt diff=odd\n")
    repo.write("a.txt", "two\n")
    ran.unlink(missing_ok=True)
    repo("status")
    assert "+two" in repo("diff")
    repo("add", paths=["a.txt"])
    repo("commit", message="two")
    repo("branch", name="feat", create=True, switch=True)
    repo("branch", name="main", switch=True)
    assert not ran.exists()


def test_filters_of_a_repository_run_in_the_sandbox(repo: Repo, outside: Path) -> None:
    repo.git("config", "filter.odd.clean", f"touch {outside}/ran; cat {outside}/secret.txt; cat")
    repo.write(".git/info/attributes", "*.txt filter=odd\n")
    repo.write("a.txt", "two\n")
    assert "secret" not in repo("diff").replace("secret.txt", "")
    assert not (outside / "ran").exists()


def test_the_user_s_own_settings_are_not_read(repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text("[user]\n\tname = Host\n\temail = host@x\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    repo("commit", message="one", allow_empty=True)
    assert repo.git("log", "-1", "--format=%an").strip() == "lmagent"


def test_what_permission_rules_hide_is_neither_shown_nor_staged(repo: Repo) -> None:
    repo.write("secret/key", "old\n")
    repo.git("add", ".")
    repo.git("commit", "-qm", "second")
    repo.write("secret/key", "hush\n")
    repo.write("secret/new", "hush\n")
    repo.write("a.txt", "two\n")
    repo.hidden = "secret/"
    assert repo("status").endswith("(2 paths left out by permission rules.)")
    text = repo("diff")
    assert "+two" in text
    assert "hush" not in text
    assert text.endswith("(1 path left out by permission rules.)")
    added = repo("add", paths=["."])
    assert added == "staged:\nM  a.txt\n(2 paths left out by permission rules.)"


# --- no repository, no git, no sandbox -----------------------------------------------------------------------------


def test_a_folder_without_a_repository_is_told(bare: Repo) -> None:
    for tool, arguments in (("status", {}), ("diff", {}), ("add", {"paths": ["."]}), ("branch", {})):
        assert "not a git repository" in bare.refused(tool, **arguments)
    assert "not a git repository" in bare.refused("commit", message="m")


def test_a_repository_that_lies_outside_is_told(bare: Repo, outside: Path) -> None:
    bare.write(".git", f"gitdir: {outside}/repo\n")
    assert f"not a git repository: {outside}/repo" in bare.refused("status")


def test_a_repository_around_the_workspace_is_not_used(bare: Repo) -> None:
    bare.git("init", "-q", cwd=bare.workspace.parent)
    assert "not a git repository" in bare.refused("status")


def test_a_missing_git_is_told(workspace: Path) -> None:
    repo = Repo(workspace, FakeSandbox({}, FakeClock(), workspace))
    assert repo.refused("status") == "There is no git where commands run."


def test_without_a_sandbox_nothing_is_run(workspace: Path) -> None:
    broken = FakeSandbox({}, FakeClock(), workspace)
    broken.broken = "no sandbox"
    with pytest.raises(SandboxError):
        Repo(workspace, broken)("status")
    assert broken.runs == []


def test_calls_are_shown_in_words(bare: Repo) -> None:
    def summary(tool: str, **arguments: Any) -> str:
        one = bare.tools[f"git_{tool}"]
        assert one.summary is not None
        return one.summary(msgspec.convert(arguments, one.arguments))

    assert summary("add", paths=["a", "b"]) == "git add a b"
    assert summary("commit", message="one\ntwo") == "git commit one two"
    assert summary("branch", name="x", create=True, switch=True) == "git switch -c x"
    assert summary("branch") == "git branch"
    targets = bare.tools["git_add"].targets
    assert targets is not None
    assert targets(msgspec.convert({"paths": ["./a"]}, bare.tools["git_add"].arguments)) == ("a",)
