"""Landlock for real, where the kernel has it: what holds, what is said not to, and that nobody gets it unasked."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Exit, Limits, Sandbox
from lmagent.sandbox.inside import launch
from lmagent.sandbox.landlock import OLDEST, Landlock
from lmagent.testing.conformance import SandboxConformance

VERSION = launch.abi() if sys.platform == "linux" else 0
pytestmark = pytest.mark.skipif(VERSION < OLDEST, reason=f"needs Landlock {OLDEST}: this kernel has {VERSION}")

BEAT = "while :; do date +%s%N >>beat; sleep 0.05; done"
ESCAPED = f"(setsid sh -c '({BEAT}) & wait' &); (setsid setsid sh -c '{BEAT}' </dev/null >/dev/null 2>&1 &); sleep 60"


def landlock(workspace: Path, **more) -> Landlock:
    return Landlock(workspace, os.environ, **more)


class TestConformance(SandboxConformance):
    def make(self, workspace: Path) -> Sandbox:
        return landlock(workspace)


def run(workspace: Path, *argv: str, timeout: float = 30.0, env: dict[str, str] | None = None, **more):
    shown = bytearray()

    async def main() -> Exit:
        sandbox = landlock(workspace, **more)
        try:
            with anyio.fail_after(60):
                command = Exec(argv, timeout=timeout, merge=True, env=env or {})
                running = await sandbox.start(command, lambda _, piece: shown.extend(piece))
                return await running.wait()
        finally:
            await sandbox.aclose()

    return anyio.run(main), shown.decode("utf-8", "replace")


def still(file: Path) -> bool:
    for _ in range(40):
        size = file.stat().st_size
        time.sleep(0.25)
        if file.stat().st_size == size:
            return True
    return False


def test_its_report_says_what_is_kept_and_what_is_not(tmp_path):
    report = anyio.run(landlock(tmp_path).probe)
    assert (report.works, report.degraded) == (True, True), report.reason
    kept = {promise.name: promise.kept for promise in report.promises}
    assert {name for name, holds in kept.items() if holds} >= {"files", "network", "kernel", "environment", "limits"}
    assert {name for name, holds in kept.items() if not holds} == {"processes", "git", "metadata"}


def test_nothing_outside_the_workspace_can_be_read_or_written(tmp_path):
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (tmp_path / "secret").write_text("word")
    (workspace / "link").symlink_to("../secret")
    script = f"""
    cat ../secret; cat link; cat /proc/{os.getpid()}/environ; ls {tmp_path}; ls ~root; cat /etc/shadow
    echo x >../secret; : >../new; rm ../secret; ln ../secret hard; mv ../secret here; cat /proc/kcore | head -c 1
    """
    end, text = run(workspace, "sh", "-c", script)
    assert end.code != 0
    assert "word" not in text
    assert (sorted(os.listdir(tmp_path)), (tmp_path / "secret").read_text()) == (["secret", "ws"], "word")
    assert os.listdir(workspace) == ["link"]


def test_no_socket_can_be_made_not_even_to_a_unix_socket_of_another_program(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        script = f"""
import socket
near, far = socket.socketpair()
near.send(b"fine")
for family, kind in ((socket.AF_INET, 1), (socket.AF_INET, 2), (socket.AF_INET6, 1), (socket.AF_UNIX, 1)):
    try:
        socket.socket(family, kind).connect(("127.0.0.1", {port}))
    except OSError as error:
        print(error.errno)
"""
        _, text = run(tmp_path, "python3", "-c", script)
    assert text.split() == ["97"] * 4


def test_root_has_no_capability_inside(tmp_path):
    _, text = run(tmp_path, "grep", "-E", "^Cap(Eff|Prm|Bnd)|NoNewPrivs", "/proc/self/status")
    assert "CapEff:\t0000000000000000" in text
    assert "CapPrm:\t0000000000000000" in text
    assert "NoNewPrivs:\t1" in text


@pytest.mark.skipif(VERSION < 6, reason="needs Landlock 6: signals can be sent to all before it")
def test_no_other_process_can_be_signalled(tmp_path):
    other = subprocess.Popen(["sleep", "60"])
    try:
        run(tmp_path, "sh", "-c", f"kill -9 {other.pid}; kill -9 $PPID; kill -STOP $PPID")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_what_the_commands_variables_ask_for_does_not_happen_outside(tmp_path):
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "sitecustomize.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')")
    env = {"LD_PRELOAD": str(workspace / "x.so"), "PYTHONPATH": str(workspace), "PYTHONHOME": "/nowhere"}
    _, text = run(workspace, "sh", "-c", "true", env=env)
    assert text.count("x.so") <= 1  # said by the loader of the command, not of what starts it
    assert os.listdir(tmp_path) == ["ws"]


def test_it_has_a_home_and_a_folder_for_temporary_files_that_go_with_it(tmp_path):
    end, text = run(tmp_path, "sh", "-c", "echo x >~/x && echo y >$TMPDIR/y && mktemp && echo $HOME")
    assert end.code == 0
    assert not Path(text.split()[-1]).exists()


def test_limits_hold(tmp_path):
    end, _ = run(tmp_path, "sh", "-c", "head -c 3000000 /dev/zero >big", limits=Limits(file_mb=1))
    assert end.code != 0
    assert (tmp_path / "big").stat().st_size <= 1024 * 1024
    end, _ = run(tmp_path, "python3", "-c", "x = bytearray(10**9)", limits=Limits(memory_mb=128))
    assert end.code != 0


def test_a_timeout_kills_what_put_itself_into_other_sessions(tmp_path):
    end, _ = run(tmp_path, "sh", "-c", ESCAPED, timeout=1.0)
    assert end.reason == "timeout"
    assert still(tmp_path / "beat")


def test_what_a_command_leaves_behind_dies_with_it(tmp_path):
    end, _ = run(tmp_path, "sh", "-c", f"(setsid sh -c '{BEAT}' >/dev/null 2>&1 &); sleep 0.3; exit 4")
    assert end.code == 4
    assert still(tmp_path / "beat")


AGENT = """
import anyio, os, sys
from pathlib import Path
from lmagent.core.sandbox import Exec
from lmagent.sandbox.landlock import Landlock

async def main():
    running = await Landlock(Path(sys.argv[1]), os.environ).start(Exec(("sh", "-c", sys.argv[2])), print)
    await running.wait()

anyio.run(main)
"""


def test_killing_the_agent_leaves_nothing(tmp_path):
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path), ESCAPED])
    try:
        while not (tmp_path / "beat").exists() and agent.poll() is None:
            time.sleep(0.05)
    finally:
        agent.send_signal(signal.SIGKILL)
        agent.wait()
    assert still(tmp_path / "beat")


def test_single_hosts_cannot_be_allowed_so_nothing_runs(tmp_path):
    with pytest.raises(SandboxError, match="some hosts"):
        anyio.run(landlock(tmp_path).start, Exec(("true",), hosts=("example.com:443",)), print)


@pytest.mark.parametrize(
    "command", [Exec(("a\0b",)), Exec(()), Exec(("true", "x" * 1_000_000)), Exec(("true",), cwd="..")]
)
def test_what_cannot_be_a_command_is_refused(command, tmp_path):
    with pytest.raises(SandboxError):
        anyio.run(landlock(tmp_path).start, command, print)
