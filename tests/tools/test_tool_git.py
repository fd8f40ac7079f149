"""What the git tools do in a repository, on a real sandbox."""

import os
from pathlib import Path

import pytest
from git_kit import Repo

from lmagent.core.events import ToolFinished
from lmagent.terminal.render import command_output
from lmagent.tools.git.calls import MOST


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


@pytest.fixture
def conflict(repo: Repo) -> Repo:
    repo.git("checkout", "-qb", "feat")
    repo.write("a.txt", "theirs\n")
    repo.git("commit", "-qam", "theirs")
    repo.git("checkout", "-q", "main")
    repo.write("a.txt", "ours\n")
    repo.git("commit", "-qam", "ours")
    repo.git("merge", "feat")
    return repo


# --- status --------------------------------------------------------------------------------------------------------


def test_status_tells_branch_and_that_all_is_clean(repo: Repo) -> None:
    assert repo("status") == "branch main, clean"


def test_status_before_the_first_commit(empty: Repo) -> None:
    assert empty("status") == "branch No commits yet on main, clean"


def test_status_lists_paths_with_the_two_letters_of_git(repo: Repo) -> None:
    repo.write("gone.txt", "one\ntwo\nthree\n")
    repo.git("add", ".")
    repo.git("commit", "-qm", "second")
    repo.write("both.txt")
    repo.git("add", "both.txt")
    repo.write("both.txt", "two\n")
    repo.git("mv", "gone.txt", "moved here.txt")
    (repo.workspace / "a.txt").unlink()
    repo.write("new/x.txt")
    assert repo("status").split("\n") == [
        "branch main",
        " D a.txt",
        "AM both.txt",
        "R  gone.txt -> moved here.txt",
        "?? new/",
    ]


def test_odd_names_stay_on_one_line(repo: Repo) -> None:
    for odd in ("with space", " at the edges ", "line\nend", "naïve 世界", 'quo"te', "esc\x1b[31m", "-n", ":(glob)*"):
        repo.write(odd)
    (repo.workspace / os.fsdecode(b"no\xffutf8")).write_text("x")
    lines = {line.removeprefix("?? ") for line in repo("status").split("\n")[1:]}
    assert {"with space", '" at the edges "', '"line\\nend"', "naïve 世界", '"quo\\"te"', "-n"} <= lines
    assert '"esc\\u001b[31m"' in lines
    assert '"no\\udcffutf8"' in lines
    assert len(lines) == 9


def test_a_long_list_is_capped(repo: Repo) -> None:
    for number in range(MOST + 5):
        repo.write(f"f{number}")
    text = repo("status")
    assert text.count("?? f") == MOST
    assert text.endswith("\n… and 5 more")


def test_status_tells_how_far_the_branch_is_from_its_upstream(repo: Repo, outside: Path) -> None:
    remote = outside / "remote.git"
    repo.git("init", "-q", "--bare", str(remote))
    repo.git("push", "-q", "-u", str(remote), "main")
    repo.git("remote", "add", "origin", str(remote))
    repo.git("fetch", "-q", "origin")
    repo.git("branch", "-u", "origin/main")
    assert repo("status") == "branch main...origin/main, clean"
    repo.git("commit", "-q", "--allow-empty", "-m", "more")
    assert repo("status") == "branch main...origin/main [ahead 1], clean"
    repo.git("update-ref", "-d", "refs/remotes/origin/main")
    assert repo("status") == "branch main...origin/main [gone], clean"


def test_a_detached_head_is_told(repo: Repo) -> None:
    repo.git("checkout", "-q", "--detach")
    assert repo("status") == "branch HEAD (no branch), clean"
    assert repo("branch").startswith("* (HEAD detached at ")


# --- diff ----------------------------------------------------------------------------------------------------------


def test_diff_shows_what_is_not_staged_or_what_is(repo: Repo) -> None:
    repo.write("a.txt", "two\n")
    assert "-one\n+two" in repo("diff")
    repo.git("add", "a.txt")
    assert "-one\n+two" in repo("diff", staged=True)
    assert repo("diff") == "No unstaged changes.\nM  a.txt"


def test_diff_of_one_path_leaves_the_others_out(repo: Repo) -> None:
    repo.write("[x].txt")
    repo.write("x.txt")
    repo.git("add", ".")
    repo.git("commit", "-qm", "second")
    for path in ("a.txt", "[x].txt", "x.txt"):
        repo.write(path, "two\n")
    text = repo("diff", path="[x].txt")
    assert text.count("diff --git") == 1
    assert "b/[x].txt" in text
    absolute = repo("diff", path=str(repo.workspace / "x.txt"))
    assert "b/x.txt" in absolute
    assert "b/[x].txt" not in absolute


def test_a_diff_that_is_empty_says_what_the_path_is(repo: Repo) -> None:
    repo.write("new.txt")
    assert repo("diff", path="a.txt") == "No unstaged changes in a.txt."
    assert repo("diff", path="new.txt") == "No unstaged changes in new.txt.\n?? new.txt"


def test_line_ends_are_shown_where_they_differ(repo: Repo) -> None:
    (repo.workspace / "a.txt").write_bytes(b"one\r\n")
    assert "-one\n+one\\r" in repo("diff")


def test_a_diff_has_the_usual_form_whatever_the_repository_is_set_to(repo: Repo) -> None:
    for setting in ("diff.noprefix", "diff.mnemonicPrefix", "diff.relative"):
        repo.git("config", setting, "true")
    repo.git("config", "color.ui", "always")
    repo.write("a.txt", "two\n")
    assert repo("diff").startswith("diff --git a/a.txt b/a.txt\n")


def test_paths_outside_are_refused(repo: Repo) -> None:
    assert "'..' is not followed" in repo.refused("diff", path="../outside/secret.txt")
    assert "outside the workspace" in repo.refused("diff", path="/etc/passwd")
    assert "'..' is not followed" in repo.refused("add", paths=["../x"])


# --- add -----------------------------------------------------------------------------------------------------------


def test_add_tells_what_is_staged_now(repo: Repo) -> None:
    repo.write("b.txt")
    repo.write("dir/c d.txt")
    assert repo("add", paths=["b.txt"]) == "staged:\nA  b.txt"
    assert repo("add", paths=["."]) == "staged:\nA  b.txt\nA  dir/c d.txt"


def test_a_removed_file_can_be_staged(repo: Repo) -> None:
    (repo.workspace / "a.txt").unlink()
    assert repo("add", paths=["a.txt"]) == "staged:\nD  a.txt"


def test_adding_what_has_not_changed_says_so(repo: Repo) -> None:
    assert repo("add", paths=["a.txt"]) == "Nothing is staged."


def test_an_unknown_path_stages_nothing(repo: Repo) -> None:
    repo.write("b.txt")
    assert repo.refused("add", paths=["b.txt", "nope"]) == "git add failed: pathspec 'nope' did not match any files"
    assert repo("status") == "branch main\n?? b.txt"
    assert "Name what to stage" in repo.refused("add", paths=[])


def test_patterns_are_not_expanded(repo: Repo) -> None:
    repo.write("b.txt")
    assert "did not match" in repo.refused("add", paths=["*.txt"])
    assert "did not match" in repo.refused("add", paths=[":(top)b.txt"])


def test_ignored_files_and_git_itself_are_not_added(repo: Repo) -> None:
    repo.write(".gitignore", "*.log\n")
    repo.write("x.log")
    assert "ignored by one of your .gitignore files" in repo.refused("add", paths=["x.log"])
    assert "refused" in repo.refused("add", paths=[".git/config"])
    assert "refused" in repo.refused("add", paths=[".lmagent"])


def test_our_own_records_are_never_staged(repo: Repo) -> None:
    repo.write(".lmagent/sessions/s/events.jsonl")
    repo.write("b.txt")
    assert repo("add", paths=["."]) == "staged:\nA  b.txt"


def test_a_lock_is_told(repo: Repo) -> None:
    repo.write(".git/index.lock")
    repo.write("b.txt")
    assert "index.lock': File exists" in repo.refused("add", paths=["b.txt"])


# --- commit --------------------------------------------------------------------------------------------------------


def test_commit_tells_hash_subject_and_counts(repo: Repo) -> None:
    repo.write("a.txt", "two\n")
    repo.git("add", "a.txt")
    output = repo.output("commit", message="Fix $5 in ../b: “é”\n\n# no comment\nbody\n")
    short = repo.git("rev-parse", "--short", "HEAD").strip()
    assert output.content == (
        f"Committed [main {short}] Fix $5 in ../b: “é”\n1 file changed, 1 insertion(+), 1 deletion(-)"
    )
    assert repo.git("log", "-1", "--format=%B").strip() == "Fix $5 in ../b: “é”\n\n# no comment\nbody"


def test_what_git_says_is_output_that_a_terminal_shows(repo: Repo) -> None:
    output = repo.output("status")
    event = ToolFinished(call_id="c", tool="git_status", status="ok", content=output.content, data=output.data)
    assert command_output(event) == ["branch main, clean"]


def test_the_first_commit_works(empty: Repo) -> None:
    empty.write("a.txt")
    empty("add", paths=["a.txt"])
    assert "1 file changed" in empty("commit", message="first")


def test_a_commit_is_the_users_where_the_repository_says_who_that_is(repo: Repo) -> None:
    repo("commit", message="one", allow_empty=True)
    assert repo.git("log", "-1", "--format=%an <%ae> %cn").strip() == "lmagent <lmagent@localhost> lmagent"
    repo.git("config", "user.name", "Ada")
    repo.git("config", "user.email", "ada@example.com")
    repo("commit", message="two", allow_empty=True)
    assert repo.git("log", "-1", "--format=%an <%ae> %cn").strip() == "Ada <ada@example.com> Ada"


def test_nothing_to_commit_says_what_there_is(repo: Repo) -> None:
    assert "allow_empty=true makes an empty commit" in repo.refused("commit", message="m")
    repo.write("a.txt", "two\n")
    repo.write("b.txt")
    told = repo.refused("commit", message="m")
    assert told.startswith("Nothing is staged, so nothing was committed.")
    assert told.endswith("\n M a.txt\n?? b.txt")


def test_messages_that_no_commit_can_have_are_refused(repo: Repo) -> None:
    assert "empty" in repo.refused("commit", message=" \n", allow_empty=True)
    assert "NUL" in repo.refused("commit", message="a\0b", allow_empty=True)
    assert "half a character" in repo.refused("commit", message="a\ud800", allow_empty=True)
    assert "longer than" in repo.refused("commit", message="a" * 200_000, allow_empty=True)
    assert repo.git("rev-list", "--count", "HEAD").strip() == "1"


def test_a_message_may_be_long_and_begin_with_a_dash(repo: Repo) -> None:
    repo("commit", message="--amend " + "x" * 90_000, allow_empty=True)
    assert repo.git("rev-list", "--count", "HEAD").strip() == "2"


def test_a_merge_conflict_is_told_and_can_be_committed_once_resolved(conflict: Repo) -> None:
    assert "UU a.txt" in conflict("status")
    assert "unmerged" in conflict.refused("commit", message="m")
    assert "git switch failed" in conflict.refused("branch", name="feat", switch=True)
    assert "++<<<<<<< HEAD" in conflict("diff")
    conflict.write("a.txt", "both\n")
    conflict("add", paths=["a.txt"])
    assert conflict("commit", message="merged").endswith("] merged")
    assert len(conflict.git("log", "-1", "--format=%P").split()) == 2


# --- branch --------------------------------------------------------------------------------------------------------


def test_branches_are_listed_with_the_current_one(repo: Repo) -> None:
    repo.git("branch", "feat")
    short = repo.git("rev-parse", "--short", "HEAD").strip()
    assert repo("branch") == f"  feat {short} first\n* main {short} first"


def test_branches_before_the_first_commit(empty: Repo) -> None:
    assert empty("branch") == "No commits yet on main"
    assert "git branch failed" in empty.refused("branch", name="feat", create=True)
    assert empty("branch", name="feat", create=True, switch=True) == "Created and switched to branch feat."


def test_a_branch_is_created_and_switched_to(repo: Repo) -> None:
    assert repo("branch", name="feat", create=True).startswith("Created branch feat")
    assert repo("status").startswith("branch main")
    repo.write("a.txt", "two\n")
    assert repo("branch", name="feat", switch=True) == "Switched to branch feat."
    assert repo("branch", name="new", create=True, switch=True).startswith("Created and switched to branch new.")
    assert "switch=true switches to it" in repo.refused("branch", name="main")


def test_branch_mistakes_are_told(repo: Repo) -> None:
    assert "already exists" in repo.refused("branch", name="main", create=True)
    assert "invalid reference: nope" in repo.refused("branch", name="nope", switch=True)
    assert "cannot be a branch's name" in repo.refused("branch", create=True)
    for bad in ("a b", "-f", "--detach", "@{-1}", "a..b", ".lock/x"):
        assert "cannot be a branch's name" in repo.refused("branch", name=bad, create=True, switch=True)
    assert "NUL" in repo.refused("branch", name="a\0")


def test_a_switch_that_would_lose_changes_is_refused(repo: Repo) -> None:
    repo.git("checkout", "-qb", "feat")
    repo.write("a.txt", "two\n")
    repo.git("commit", "-qam", "two")
    repo.write("a.txt", "mine\n")
    told = repo.refused("branch", name="main", switch=True)
    assert "would be overwritten by checkout:\n\ta.txt" in told
    assert (repo.workspace / "a.txt").read_text() == "mine\n"
