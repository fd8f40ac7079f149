import os
import shutil
import tempfile
from pathlib import Path

import pytest
from gitguard_kit import ATTACKS, Attack, Ground, as_nobody, checked

from lmagent.sandbox.git.guard import GitGuard
from lmagent.sandbox.git.scan import ScanBounds


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "guarded")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_what_a_command_planted_does_not_run_when_the_user_uses_git(attack: Attack, tmp_path: Path):
    control = Ground(tmp_path / "control")
    attack.before(control)
    attack.plant(control)
    assert control.use(*attack.where) is attack.runs, "what git really does has changed"

    ground = Ground(tmp_path / "guarded")
    attack.before(ground)
    findings = checked(ground, attack.plant)
    assert findings
    assert not ground.use(".", *attack.where), findings
    for aside in ground.ws.rglob("*lmagent-quarantine*"):
        if aside.is_dir():
            assert not ground.use(str(aside.relative_to(ground.ws))), aside
    assert checked(ground, lambda _: None) == ()


KEYS = """
core.fsmonitor core.hooksPath core.sshCommand core.pager core.editor core.askPass core.gitProxy diff.external
diff.x.command diff.x.textconv filter.x.clean filter.x.smudge filter.x.process merge.x.driver mergetool.x.cmd
difftool.x.cmd credential.helper credential.https://x.helper gpg.program gpg.ssh.program gpg.ssh.defaultKeyCommand
pager.log alias.st sequence.editor uploadpack.packObjectsHook remote.o.uploadpack remote.o.receivepack remote.o.vcs
remote.o.proxy include.path includeIf.gitdir:/.path init.templateDir interactive.diffFilter tar.x.command
trailer.x.command trailer.x.cmd hook.x.command web.browser browser.x.cmd man.x.cmd url./x.insteadOf protocol.ext.allow
core.attributesFile core.alternateRefsCommand gc.recentObjectsHook help.browser instaweb.httpd imap.tunnel
sendemail.smtpServer lfs.customtransfer.x.path svn.authorsProg some.tool.textconv new.editor new.x.hooksPath
"""


@pytest.mark.parametrize("key", KEYS.split())
def test_a_key_that_makes_git_run_something_is_found_in_a_new_repository(key: str, ground: Ground):
    def plant(ground: Ground) -> None:
        ground.git("init", "-q", "new", check=True)
        ground.git("config", key, "./tool --now", cwd="new", check=True)

    (finding,) = checked(ground, plant)
    assert key.split(".")[-1].lower() in finding.what
    assert not (ground.ws / "new/.git/config").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("remote.o.url", "ext::sh -c evil"),
        ("branch.main.remote", "ext::sh -c evil"),
        ("submodule.x.update", "!evil"),
        ("core.worktree", "../../.."),
        ("core.hooksPath", "cat"),
    ],
)
def test_a_value_that_makes_git_run_something_is_found(key: str, value: str, ground: Ground):
    def plant(ground: Ground) -> None:
        ground.git("init", "-q", "new", check=True)
        ground.git("config", key, value, cwd="new", check=True)

    assert len(checked(ground, plant)) == 1


def test_harmless_new_repositories_are_left_alone(ground: Ground):
    ground.repo()

    def plant(ground: Ground) -> None:
        ground.repo("plain")
        ground.git("clone", "-q", "plain", "clone", check=True)
        ground.git("clone", "-q", "--bare", "plain", "bare.git", check=True)
        ground.git("worktree", "add", "-q", "../tree", cwd="plain", check=True)
        ground.git(
            "-c", "protocol.file.allow=always", "submodule", "add", "-q", "../plain", "s", cwd="clone", check=True
        )
        ground.git("config", "user.name", "Me", cwd="clone", check=True)
        ground.git("config", "core.pager", "cat", cwd="clone", check=True)
        ground.git("config", "core.hooksPath", "/dev/null", cwd="clone", check=True)
        ground.git("config", "core.fsmonitor", "false", cwd="clone", check=True)
        ground.write("clone/.gitattributes", "* filter=lfs\n")

    assert checked(ground, plant) == ()
    assert ground.git("status", "--short", cwd="clone")


def test_the_users_own_hooks_and_config_stay(ground: Ground):
    ground.repo()
    ground.evil(".git/config")
    ground.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 0\n", run=True)
    ground.write("scripts/push", "#!/bin/sh\nexit 0\n", run=True)
    (ground.ws / ".git/hooks/pre-push").symlink_to("../../scripts/push")
    assert checked(ground, lambda ground: ground.write("b.txt", "x")) == ()
    assert ground.use()


def test_a_change_of_the_user_between_two_commands_is_not_the_agents(ground: Ground):
    ground.repo()
    guard = GitGuard(ground.ws)
    guard.baseline()
    assert guard.check() == ()
    ground.git("config", "core.editor", "nano")
    ground.write(".git/hooks/pre-commit", "#!/bin/sh\n")
    guard.baseline()
    assert guard.check() == ()


def test_a_job_that_plants_while_another_command_is_marked_is_found_by_its_own_mark(ground: Ground):
    ground.repo()
    guard = GitGuard(ground.ws)
    job = guard.baseline()
    ground.evil(".git/config")
    command = guard.baseline()
    assert guard.check(command) == ()
    assert len(guard.check(job)) == 1
    assert not ground.use()


def test_a_changed_config_and_hook_are_put_back_as_they_were(ground: Ground):
    git = ground.repo()
    hook = ground.write(".git/hooks/pre-push", "#!/bin/sh\necho mine\n", run=True)
    good = (git / "config").read_bytes()

    def plant(ground: Ground) -> None:
        ground.git("config", "user.email", "other@example.com")
        hook.write_text("#!/bin/sh\necho theirs\n")

    findings = checked(ground, plant)
    assert {finding.path for finding in findings} == {".git/config", ".git/hooks/pre-push"}
    assert (git / "config").read_bytes() == good
    assert hook.read_text().endswith("echo mine\n")
    assert hook.stat().st_mode & 0o777 == 0o755
    assert "theirs" in (git / "hooks/pre-push.lmagent-quarantine-1").read_text()


def test_a_hook_that_was_made_executable_is_put_back(ground: Ground):
    ground.repo()
    hook = ground.write(".git/hooks/post-checkout", f"#!/bin/sh\n{ground.payload}\n")
    assert checked(ground, lambda _: hook.chmod(0o755))
    assert not ground.use()


def test_a_config_that_got_another_name_is_cut_loose(ground: Ground):
    git = ground.repo()
    (finding,) = checked(ground, lambda ground: os.link(git / "config", ground.ws / "innocent"))
    assert finding.path == ".git/config"
    ground.evil("innocent")
    assert not ground.use()


def test_the_users_git_folder_comes_back_when_another_took_its_place(ground: Ground):
    git = ground.repo()
    head = ground.git("rev-parse", "HEAD")

    def plant(ground: Ground) -> None:
        git.rename(ground.ws / "old")
        ground.repo("x")
        (ground.ws / "x/.git").rename(git)

    assert checked(ground, plant)[0].path == ".git"
    assert ground.git("rev-parse", "HEAD") == head
    assert not (ground.ws / "old").exists()


def test_what_the_agents_own_repository_becomes_is_looked_at_again(ground: Ground):
    guard = GitGuard(ground.ws)
    guard.baseline()
    ground.repo("made")
    assert guard.check() == ()
    guard.baseline()
    ground.git("config", "user.name", "Me", cwd="made")
    assert guard.check() == ()
    guard.baseline()
    ground.evil("made/.git/config")
    assert len(guard.check()) == 1
    assert not ground.use("made")
    assert "Me" in (ground.ws / "made/.git/config").read_text()


def test_a_gitlink_to_a_repository_of_the_users_that_runs_something_is_taken_out_of_the_index(ground: Ground):
    ground.repo()
    ground.repo("vendor/tool")
    ground.evil("vendor/tool/.git/config")
    assert not ground.use()
    (finding,) = checked(ground, lambda ground: ground.git("add", "vendor/tool"))
    assert finding.path == ".git/index"
    assert not ground.use()
    assert ground.use("vendor/tool")


def test_a_repository_of_the_users_that_is_moved_and_linked_does_not_run_either(ground: Ground):
    ground.repo()
    ground.repo("tool")
    ground.evil("tool/.git/config")

    def plant(ground: Ground) -> None:
        (ground.ws / "tool").rename(ground.ws / "moved")
        ground.git("add", "moved")

    assert [finding.path for finding in checked(ground, plant)] == [".git/index"]
    assert not ground.use()


def test_what_the_users_config_leads_to_is_watched_too(ground: Ground):
    ground.repo()
    ground.git("config", "core.hooksPath", ".githooks")
    ground.git("config", "include.path", "../shared.config")
    ground.write("shared.config", "[user]\n\tname = We\n")
    ground.write(".githooks/pre-commit", "#!/bin/sh\nexit 0\n", run=True)

    def plant(ground: Ground) -> None:
        ground.evil("shared.config")
        ground.write(".githooks/post-checkout", f"#!/bin/sh\n{ground.payload}\n", run=True)

    assert {finding.path for finding in checked(ground, plant)} == {"shared.config", ".githooks/post-checkout"}
    assert not ground.use()
    assert (ground.ws / "shared.config").read_text() == "[user]\n\tname = We\n"
    readonly = {str(item.path.relative_to(ground.ws)) for item in GitGuard(ground.ws).protected() if not item.writable}
    assert readonly == {".git/config", ".git/hooks", ".githooks", "shared.config"}


def test_a_program_of_the_workspace_that_the_users_config_runs_is_reported_when_it_changes(ground: Ground):
    ground.repo()
    ground.git("config", "filter.x.clean", "sh tools/clean.sh --fast")
    ground.write("tools/clean.sh", "cat\n")
    (finding,) = checked(ground, lambda ground: ground.write("tools/clean.sh", "sed s/a/b/\n"))
    assert "runs it" in finding.what
    assert (ground.ws / "tools/clean.sh").read_text() == "sed s/a/b/\n"


def test_a_hook_among_very_many_files_is_found(ground: Ground):
    ground.repo()

    def plant(ground: Ground) -> None:
        for number in range(2_500):
            ground.write(f".git/hooks/{number}", "")
        ground.write(".git/hooks/post-checkout", f"#!/bin/sh\n{ground.payload}\n", run=True)

    assert checked(ground, plant)
    assert not ground.use()


@pytest.mark.parametrize("path", ["../../../../outside", "/etc"])
def test_a_gitfile_or_alternates_that_lead_outside_are_put_aside(path: str, ground: Ground):
    def plant(ground: Ground) -> None:
        ground.repo("new")
        ground.write("new/.git/objects/info/alternates", f"{path}/objects\n")
        ground.write("file/.git", f"gitdir: {path}\n")

    assert {finding.path for finding in checked(ground, plant)} == {"new/.git/objects/info/alternates", "file/.git"}


def test_a_gitfile_that_names_the_workspace_as_the_sandbox_sees_it_is_left_alone(ground: Ground):
    guard = GitGuard(ground.ws, inside="/workspace-inside")
    guard.baseline()
    ground.repo("new")
    ground.write("tree/.git", "gitdir: /workspace-inside/new/.git\n")
    assert guard.check() == ()


def test_orders_in_a_rebase_are_reported_and_those_in_gitmodules_do_not_run(ground: Ground):
    ground.repo()

    def plant(ground: Ground) -> None:
        ground.write(".gitmodules", f'[submodule "s"]\n\tpath = s\n\turl = ./s\n\tupdate = "!{ground.payload}"\n')
        ground.write(".git/rebase-merge/git-rebase-todo", f"pick 123 a\nexec {ground.payload}\n")

    findings = checked(ground, plant)
    assert [finding.path for finding in findings] == [".git/rebase-merge/git-rebase-todo"]
    head = ground.git("rev-parse", "HEAD", check=True).strip()
    ground.git("update-index", "--add", "--cacheinfo", f"160000,{head},s", check=True)
    ground.git("submodule", "update", "--init")  # git itself refuses such an order
    assert not ground.marker.exists()
    assert not ground.use()


def _fifo(ground: Ground) -> None:
    config = ground.ws / "new/.git/config"
    config.unlink()
    os.mkfifo(config)


@pytest.mark.parametrize(
    "damage",
    [
        _fifo,
        lambda ground: ground.evil("new/.git/config", "[core\nx"),
        lambda ground: ground.evil("new/.git/config", '[a]\n\tb = "\n'),
        lambda ground: ground.evil("new/.git/config", "[a]\n\tb = \0\n"),
        lambda ground: ground.evil("new/.git/config", "#" * (2 << 20)),
    ],
    ids=["fifo", "header", "quote", "NUL", "size"],
)
def test_a_config_that_cannot_be_read_is_suspicious(damage, ground: Ground):
    def plant(ground: Ground) -> None:
        ground.repo("new")
        damage(ground)

    assert len(checked(ground, plant)) == 1
    assert not (ground.ws / "new/.git/config").exists()


def test_names_that_are_no_text_and_control_characters_are_spelled_out(ground: Ground):
    def plant(ground: Ground) -> None:
        folder = os.fsencode(ground.ws) + b"/\xff\x1b[31m"
        os.mkdir(folder)
        ground.repo(os.fsdecode(folder))
        ground.evil(os.fsdecode(folder) + "/.git/config")

    (finding,) = checked(ground, plant)
    assert finding.path == "\\udcff\\x1b[31m/.git/config"
    assert finding.what.isprintable()


def test_where_the_look_ends_early_a_finding_says_so_and_gitlinks_are_followed_all_the_same(ground: Ground):
    ground.repo()
    guard = GitGuard(ground.ws, bounds=ScanBounds(entries=30))
    mark = guard.baseline()
    for number in range(50):
        ground.write(f"many/d{number}/x", "")
    ground.repo("deep/er/sub")
    ground.git("add", "deep/er/sub")
    ground.evil("deep/er/sub/.git/config")
    findings = guard.check(mark)
    assert any("only the first " in finding.what for finding in findings)
    assert any(finding.path == "deep/er/sub/.git/config" for finding in findings)
    assert not ground.use()


def test_what_an_incomplete_mark_did_not_see_and_is_old_stays(ground: Ground):
    ground.repo("a/b/c")
    ground.evil("a/b/c/.git/config")
    guard = GitGuard(ground.ws, bounds=ScanBounds(entries=1))
    mark = guard.baseline()
    mark.at += 3_600_000_000_000
    assert guard.check(mark)[0].path == "."
    assert (ground.ws / "a/b/c/.git").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_folder_that_may_not_be_listed_hides_nothing():
    base = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    try:
        ground = Ground(base / "g")
        ground.repo()
        guard = GitGuard(ground.ws)
        guard.baseline()
        ground.repo("shut/sub")
        ground.evil("shut/sub/.git/config")
        (ground.ws / "shut").chmod(0o311)
        for path in [base, *base.rglob("*")]:
            os.lchown(path, 65534, 65534)
        said = as_nobody(lambda: [f"{finding.path}: {finding.action}" for finding in guard.check()])
    finally:
        shutil.rmtree(base)
    assert "shut: made it readable" in said
    assert "shut/sub/.git/config: renamed" in said


def test_protected_paths_are_there_are_no_links_and_come_outermost_first(ground: Ground):
    git = ground.repo()
    ground.repo("lib/inner")
    (ground.ws / "linked").mkdir()
    (ground.ws / "linked/.git").symlink_to("../lib/inner/.git")
    ground.write("tree/.git", "gitdir: ../.git/worktrees/x\n")
    (git / "hooks").rename(git / "h")
    (git / "hooks").symlink_to("h")
    found = [(str(item.path.relative_to(ground.ws)), item.writable) for item in GitGuard(ground.ws).protected()]
    assert found == [
        (".git", True),
        ("lib/inner/.git", True),
        ("lib/inner/.git/hooks", False),
        (".git/h", False),
        (".git/config", False),
        ("lib/inner/.git/config", False),
        ("tree/.git", False),
    ]


def test_repositories_that_the_agent_made_are_not_mounted_by_the_guard(ground: Ground):
    ground.repo()
    guard = GitGuard(ground.ws)
    guard.baseline()
    ground.repo("made")
    guard.baseline()
    assert {item.path.relative_to(ground.ws).parts[0] for item in guard.protected()} == {".git"}


def test_no_repository_means_nothing_to_mount_and_nothing_to_find(ground: Ground):
    assert GitGuard(ground.ws).protected() == ()
    assert checked(ground, lambda ground: ground.write("x", "y")) == ()
