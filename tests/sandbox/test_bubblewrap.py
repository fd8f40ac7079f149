"""Bubblewrap for real: what a command can see, change and leave behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from sandbox_kit import bubblewrap

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Exit, Limits, Sandbox
from lmagent.sandbox.bubblewrap import Bubblewrap, wait_or_kill
from lmagent.sandbox.environment import SandboxRequest
from lmagent.testing.conformance import SandboxConformance

pytestmark = pytest.mark.usefixtures("works")


class TestConformance(SandboxConformance):
    def make(self, workspace: Path) -> Sandbox:
        return bubblewrap(workspace)


class TestConformanceWithoutGroups(SandboxConformance):
    """As an ordinary user has it, who may not make control groups."""

    def make(self, workspace: Path) -> Sandbox:
        return bubblewrap(workspace, group=False)


def run(workspace: Path, script: str, timeout: float = 30.0, **more) -> tuple[Exit, str]:
    shown = bytearray()

    async def main() -> Exit:
        with anyio.fail_after(60):
            command = Exec(("bash", "-c", script), timeout=timeout, merge=True)
            running = await bubblewrap(workspace, **more).start(command, lambda _, piece: shown.extend(piece))
            return await running.wait()

    return anyio.run(main), shown.decode("utf-8", "replace")


def test_every_promise_holds(tmp_path):
    report = anyio.run(bubblewrap(tmp_path).probe)
    assert report.works
    assert [promise for promise in report.promises if not promise.kept] == []


def test_files_belong_to_the_user_who_started_it(tmp_path):
    run(tmp_path, "echo x > made; mkdir folder")
    assert {(tmp_path / name).stat().st_uid for name in ("made", "folder")} == {os.getuid()}


def test_nothing_of_the_host_is_seen_but_programs_and_the_workspace(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    end, shown = run(workspace, f"ls {tmp_path}; cat {tmp_path}/secret.txt; ls /root /home /var 2>&1; ls /etc")
    assert "secret" not in shown.replace("secret.txt", "")
    assert "shadow" not in shown
    assert end.reason == "exit"


def test_the_agents_own_folder_is_hidden(tmp_path):
    (tmp_path / ".lmagent").mkdir()
    (tmp_path / ".lmagent" / "log").write_text("log")
    run(tmp_path, "cat .lmagent/log; rm -rf .lmagent; mv .lmagent x; echo bad > .lmagent/config.toml")
    assert (tmp_path / ".lmagent" / "log").read_text() == "log"
    assert os.listdir(tmp_path / ".lmagent") == ["log"]


def test_keys_of_the_environment_are_not_seen(tmp_path, monkeypatch):
    monkeypatch.setenv("LLM_API_KEY", "sk-secret-0123456789")
    _, shown = run(tmp_path, "env; cat /proc/*/environ")
    assert "sk-secret" not in shown


def test_git_hooks_and_configuration_cannot_be_changed(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    before = (tmp_path / ".git" / "config").read_text()
    run(tmp_path, "echo x >> .git/config; git config core.fsmonitor evil; echo x > .git/hooks/post-checkout; mv .git g")
    assert (tmp_path / ".git" / "config").read_text() == before
    assert not (tmp_path / ".git" / "hooks" / "post-checkout").exists()


def test_git_itself_works(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    who = "-c user.name=a -c user.email=a@b"
    end, shown = run(tmp_path, f"echo x > f && git add f && git {who} commit -qm one && git log --oneline")
    assert end.code == 0, shown
    assert "one" in shown


def test_processes_that_leave_their_session_die_with_the_command(tmp_path):
    run(tmp_path, "(setsid sh -c 'sleep 1; echo late > late' >/dev/null 2>&1 &) ; (sleep 1; echo l > late2) & disown")
    time.sleep(1.6)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("group", [True, False])
def test_a_timeout_leaves_nothing_running(tmp_path, group):
    script = "trap '' TERM INT; (setsid sh -c 'while :; do date > beat; sleep 0.05; done' &); sleep 60"
    end, _ = run(tmp_path, script, timeout=0.6, group=group)
    assert end.reason == "timeout"
    (tmp_path / "beat").unlink(missing_ok=True)
    time.sleep(0.4)
    assert not (tmp_path / "beat").exists()


def test_cancelling_leaves_nothing_running(tmp_path):
    async def main() -> None:
        script = "while :; do date > beat; sleep 0.05; done"
        running = await bubblewrap(tmp_path).start(Exec(("bash", "-c", script)), lambda *_: None)
        with anyio.move_on_after(0.5):
            await running.wait()
        (tmp_path / "beat").unlink(missing_ok=True)
        await anyio.sleep(0.4)
        assert not (tmp_path / "beat").exists()

    anyio.run(main)


def test_a_sigkill_of_the_agent_leaves_nothing_running(tmp_path):
    program = f"""
import anyio, os
from pathlib import Path
from lmagent.core.sandbox import Exec
from lmagent.sandbox.bubblewrap import Bubblewrap
from lmagent.sandbox.environment import SandboxRequest
async def main():
    box = Bubblewrap(Path({str(tmp_path)!r}), SandboxRequest(env=dict(os.environ)))
    script = "(setsid sh -c 'while :; do date > beat; sleep 0.05; done' &); sleep 60"
    await (await box.start(Exec(("bash", "-c", script)), lambda *_: None)).wait()
anyio.run(main)
"""
    agent = subprocess.Popen([sys.executable, "-c", program])
    deadline = time.monotonic() + 20
    while not (tmp_path / "beat").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    time.sleep(1.0)
    (tmp_path / "beat").unlink(missing_ok=True)
    time.sleep(0.4)
    assert not (tmp_path / "beat").exists()


@pytest.mark.parametrize("group", [True, False])
def test_a_memory_hog_is_stopped_and_said_to_be_one(tmp_path, group):
    hog = "python3 -c 'import time; x = [bytearray(50 << 20) for _ in range(9)]; time.sleep(3)'"
    end, _ = run(tmp_path, f"{hog} & {hog} && wait -n", limits=Limits(memory_mb=600), group=group)
    assert end.reason == "memory" or any("memory" in note for note in end.notes)


def test_a_fork_bomb_does_not_get_far(tmp_path):
    end, shown = run(tmp_path, "for i in $(seq 400); do sleep 20 & done; wait", timeout=5, limits=Limits(pids=40))
    assert "Resource temporarily unavailable" in shown or "retry" in shown
    assert end.seconds < 15


def test_a_limit_on_the_size_of_files(tmp_path):
    run(tmp_path, "head -c 30M /dev/zero > big; head -c 30M /dev/zero > /tmp/big", limits=Limits(file_mb=8))
    assert (tmp_path / "big").stat().st_size <= 8 << 20


def test_long_output_comes_whole_and_in_order(tmp_path):
    end, shown = run(tmp_path, "seq 1 200000")
    assert end.code == 0
    assert shown == "".join(f"{n}\n" for n in range(1, 200001))


@pytest.mark.parametrize("cwd", ["..", "/", "a/../../x", "missing"])
def test_a_folder_outside_or_missing_is_refused(tmp_path, cwd):
    async def main() -> None:
        await bubblewrap(tmp_path).start(Exec(("true",), cwd=cwd), lambda *_: None)

    with pytest.raises(SandboxError, match="nothing was run"):
        anyio.run(main)


def test_without_bubblewrap_on_the_path_nothing_is_run(tmp_path):
    box = Bubblewrap(tmp_path, SandboxRequest(env={"PATH": str(tmp_path)}))
    report = anyio.run(box.probe)
    assert not report.works
    assert "apt install bubblewrap" in report.fix
    with pytest.raises(SandboxError, match="not installed"):
        anyio.run(box.start, Exec(("true",)), lambda *_: None)


def test_a_bubblewrap_that_may_not_make_namespaces_is_refused_with_the_fix(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    fake = programs / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    report = anyio.run(Bubblewrap(workspace, SandboxRequest(env={"PATH": f"{programs}:/usr/bin"})).probe)
    assert not report.works
    assert "uid map" in report.reason
    assert "sysctl" in report.fix


def test_a_bubblewrap_that_lies_in_the_workspace_is_not_taken(tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\ntouch ran\n")
    fake.chmod(0o755)
    report = anyio.run(Bubblewrap(tmp_path, SandboxRequest(env={"PATH": str(tmp_path)})).probe)
    assert not report.works
    assert not (tmp_path / "ran").exists()


def test_a_workspace_that_cannot_be_written_is_reported(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    tmp_path.chmod(0o500)
    assert not anyio.run(bubblewrap(tmp_path).probe).works


def test_variables_of_a_command_do_not_reach_the_program_that_makes_its_sandbox(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc: it is not installed")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    marker = tmp_path / "escaped"
    source = workspace / "evil.c"
    source.write_text(
        "#include <fcntl.h>\n"
        f'__attribute__((constructor)) void run(void) {{ open("{marker}", O_CREAT | O_WRONLY, 0600); }}\n'
    )
    library = workspace / "evil.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)

    async def main() -> Exit:
        env = {"LD_PRELOAD": str(library), "PATH": str(workspace), "BASH_ENV": str(source), "ENV": str(source)}
        command = Exec(("/bin/sh", "-c", "echo $LD_PRELOAD"), env=env)
        return await (await bubblewrap(workspace).start(command, lambda *_: None)).wait()

    assert anyio.run(main).code == 0
    assert not marker.exists()


def test_private_keys_of_the_machine_are_not_shown(tmp_path):
    _, shown = run(tmp_path, "ls /etc/ssl /etc/pki 2>/dev/null")
    assert "private" not in shown


def test_a_first_process_that_lives_on_without_bubblewrap_is_killed():
    with subprocess.Popen(["sleep", "60"]) as first:
        wait_or_kill(first.pid)
        assert first.wait(5) == -signal.SIGKILL
