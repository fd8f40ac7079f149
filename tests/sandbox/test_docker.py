"""Docker for real: what a command in a container can see, change and leave behind, and what happens without one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from docker_kit import Relay, containers, docker, engine
from proxy_kit import OK, serving
from testkit.amount import mostly_long
from testkit.registries import registries

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Exit, Limits, Sandbox
from lmagent.sandbox.docker import IDLE
from lmagent.sandbox.limits import tree
from lmagent.sandbox.packages import PackageHosts
from lmagent.testing.conformance import SandboxConformance

BEAT = "while :; do date +%s%N >>/workspace/beat; sleep 0.05; done"
ESCAPED = f"(setsid sh -c '({BEAT}) & wait' &); (setsid setsid sh -c '{BEAT}' </dev/null >/dev/null 2>&1 &); sleep 60"


@pytest.fixture(scope="module")
def env() -> Iterator[dict[str, str]]:
    with engine() as found:
        yield found


class TestConformance(SandboxConformance):
    @pytest.fixture(autouse=True)
    def _engine(self, env: dict[str, str]) -> None:
        self.env = env

    def make(self, workspace: Path) -> Sandbox:
        return docker(workspace, self.env)


async def said(sandbox: Sandbox, *argv: str, **more) -> tuple[Exit, str]:
    shown = bytearray()
    running = await sandbox.start(Exec(argv, merge=True, **more), lambda _, piece: shown.extend(piece))
    return await running.wait(), shown.decode("utf-8", "replace")


def run(workspace: Path, env: dict[str, str], script: str, timeout: float = 30.0, **more) -> tuple[Exit, str]:
    async def main() -> tuple[Exit, str]:
        sandbox = docker(workspace, env, **more)
        try:
            with anyio.fail_after(60):
                return await said(sandbox, "sh", "-c", script, timeout=timeout)
        finally:
            await sandbox.aclose()

    return anyio.run(main)


def still(file: Path) -> bool:
    """Whether nobody writes to it any more, soon."""
    for _ in range(40):
        size = file.stat().st_size
        time.sleep(0.25)
        if file.stat().st_size == size:
            return True
    return False


def test_every_promise_holds(tmp_path, env):
    async def main():
        sandbox = docker(tmp_path, env)
        try:
            return await sandbox.probe()
        finally:
            await sandbox.aclose()

    report = anyio.run(main)
    assert report.works, report.reason
    assert [promise for promise in report.promises if not promise.kept] == []


def test_the_hardening_is_seen_from_inside(tmp_path, env):
    script = """
    grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status
    echo "filters $(sed -n 's/^Seccomp_filters:.//p' /proc/self/status)"
    touch /x 2>/dev/null || echo root read-only; touch /usr/x 2>/dev/null || echo usr read-only
    echo net $(ls /sys/class/net); echo core $(ulimit -c); echo open $(ulimit -n)
    cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null
    cat /sys/fs/cgroup/memory/memory.memsw.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null
    ls /var/run/docker.sock 2>/dev/null; echo tmp >/tmp/x && echo home >~/x && cat /tmp/x ~/x
    test -r /proc/1/environ && cat /proc/1/environ >/dev/null && echo environ
    """
    _, text = run(tmp_path, env, script)
    for line in ("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in text
    for line in ("filters 2", "root read-only", "usr read-only", "net lo", "core 0", "open 4096", "128", "536870912"):
        assert f"\n{line}\n" in f"\n{text}", text
    assert "tmp\nhome\n" in text
    assert "docker.sock" not in text


def test_files_belong_to_the_user_who_started_it(tmp_path, env):
    run(tmp_path, env, "echo x > made; mkdir folder")
    assert {(tmp_path / name).stat().st_uid for name in ("made", "folder")} == {os.getuid()}


def test_two_workspaces_do_not_see_each_other(tmp_path, env):
    async def main() -> list[str]:
        both = [docker(tmp_path / name, env) for name in "ab"]
        try:
            for name, sandbox in zip("ab", both, strict=True):
                await said(sandbox, "sh", "-c", f"echo {name} >{name}; echo {name} >/tmp/{name}")
            return [(await said(sandbox, "sh", "-c", "ls /workspace /tmp; ls / | wc -l"))[1] for sandbox in both]
        finally:
            for sandbox in both:
                await sandbox.aclose()

    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = anyio.run(main)
    assert first.split()[:4] == ["/tmp:", "a", "/workspace:", "a"]
    assert second.split()[:4] == ["/tmp:", "b", "/workspace:", "b"]


def test_a_container_serves_many_commands_and_later_connections_and_ends_with_the_last(tmp_path, env):
    async def main() -> list[str]:
        first, second = docker(tmp_path, env), docker(tmp_path, env)
        await said(first, "sh", "-c", "echo kept >/tmp/x")
        names = containers(env, tmp_path)
        assert (await said(second, "cat", "/tmp/x"))[1] == "kept\n"
        await first.aclose()
        assert (await said(second, "cat", "/tmp/x"))[1] == "kept\n"
        assert containers(env, tmp_path) == names
        await second.aclose()
        return names

    assert len(anyio.run(main)) == 1
    for _ in range(100):
        if not containers(env, tmp_path):
            return
        time.sleep(0.1)
    raise AssertionError("the container is still there")


def test_commands_run_beside_each_other(tmp_path, env):
    async def main() -> None:
        sandbox = docker(tmp_path, env)
        try:
            async with anyio.create_task_group() as tasks:

                async def one(number: int) -> None:
                    wait_for = f"echo {number} >{number}; until [ -e {1 - number} ]; do sleep 0.05; done; exit {number}"
                    end, _ = await said(sandbox, "sh", "-c", wait_for)
                    assert end.code == number

                for number in range(2):
                    tasks.start_soon(one, number)
        finally:
            await sandbox.aclose()

    anyio.run(main)


def test_a_timeout_kills_what_put_itself_into_other_sessions(tmp_path, env):
    end, _ = run(tmp_path, env, ESCAPED, timeout=1.0)
    assert (end.code, end.reason) == (137, "timeout")
    assert still(tmp_path / "beat")


@pytest.mark.long
def test_after_a_timeout_the_container_stays_with_what_its_commands_left_in_tmp(tmp_path, env):
    async def main() -> str:
        sandbox = docker(tmp_path, env)
        try:
            await said(sandbox, "sh", "-c", "echo kept >/tmp/x; sleep 60", timeout=1.0)
            await anyio.sleep(IDLE + 3)
            return (await said(sandbox, "cat", "/tmp/x"))[1]
        finally:
            await sandbox.aclose()

    assert anyio.run(main) == "kept\n"


def test_what_a_command_leaves_behind_dies_with_it(tmp_path, env):
    async def main() -> str:
        sandbox = docker(tmp_path, env)
        try:
            await said(sandbox, "sh", "-c", f"(setsid sh -c '{BEAT}' >/dev/null 2>&1 &); setsid sleep 99 & sleep 0.3")
            return (await said(sandbox, "sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null"))[1]
        finally:
            await sandbox.aclose()

    assert set(anyio.run(main).split()) <= {"python3", "sh", "cat"}
    assert still(tmp_path / "beat")


@pytest.mark.long
def test_cancelling_the_wait_kills_the_command(tmp_path, env):
    async def main() -> None:
        sandbox = docker(tmp_path, env)
        try:
            await said(sandbox, "true")  # the container may take long to start
            with anyio.move_on_after(3):
                await said(sandbox, "sh", "-c", ESCAPED)
            size = (tmp_path / "beat").stat().st_size
            await anyio.sleep(0.5)
            assert (tmp_path / "beat").stat().st_size == size
        finally:
            await sandbox.aclose()

    anyio.run(main)


def test_cancelling_a_start_leaves_no_connection(tmp_path, env):
    async def main() -> None:
        sandbox = docker(tmp_path, env)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(said, sandbox, "true")
                while b"docker\0exec" not in b"".join(commands()):  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                scope.cancel()
        assert b"docker\0exec" not in b"".join(commands())
        await sandbox.aclose()

    anyio.run(main)


def commands() -> list[bytes]:
    """The command lines of the processes that this one has started."""
    lines: list[bytes] = []
    for pid in tree(os.getpid()):
        with contextlib.suppress(OSError):
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    return lines


AGENT = """
import anyio, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from docker_kit import docker
from lmagent.core.sandbox import Exec
import os

async def main():
    running = await docker(Path(sys.argv[1]), dict(os.environ)).start(Exec(("sh", "-c", sys.argv[2])), print)
    await running.wait()

anyio.run(main)
"""


def test_killing_the_agent_leaves_nothing(tmp_path, env):
    arguments = [str(tmp_path), ESCAPED, str(Path(__file__).parent)]
    agent = subprocess.Popen([sys.executable, "-c", AGENT, *arguments], env=env)
    try:
        while not (tmp_path / "beat").exists() and agent.poll() is None:
            time.sleep(0.05)
    finally:
        agent.kill()
        agent.wait()
    assert still(tmp_path / "beat")
    for name in containers(env, tmp_path):
        subprocess.run(["docker", "rm", "-f", name], env=env, capture_output=True, check=False)


@pytest.mark.parametrize("victim", ["engine", "client"])
def test_an_engine_or_a_client_that_goes_in_the_middle_of_a_command_is_an_error(victim, tmp_path, env):
    folder = tempfile.TemporaryDirectory(prefix="lma")  # pytest's own are too long for a socket
    relay = Relay(Path(folder.name, "s"), env)

    async def main() -> None:
        sandbox = docker(tmp_path, relay.env if victim == "engine" else env)
        try:
            running = await sandbox.start(Exec(("sh", "-c", f"echo on; {ESCAPED}")), lambda *_: begun.set())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(break_it)
                with pytest.raises(SandboxError, match="connection to docker was lost"):
                    await running.wait()
            if victim == "engine":
                with pytest.raises(SandboxError, match="does not run"):
                    await sandbox.start(Exec(("true",)), print)
            else:
                assert (await said(sandbox, "echo", "again"))[1] == "again\n"
        finally:
            await sandbox.aclose()

    async def break_it() -> None:
        await begun.wait()
        await anyio.sleep(0.3)
        if victim == "engine":
            relay.cut()
        else:
            clients = [pid for pid in tree(os.getpid()) if b"docker\0exec" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            os.kill(clients[0], signal.SIGKILL)

    begun = anyio.Event()
    try:
        anyio.run(main)
        assert still(tmp_path / "beat")
    finally:
        relay.close()
        folder.cleanup()
        for name in containers(env, tmp_path):
            subprocess.run(["docker", "rm", "-f", name], env=env, capture_output=True, check=False)


@pytest.mark.parametrize("killing", ["kill -9 -1", f"(setsid sh -c '{BEAT}' &); sleep 0.3; kill -9 $PPID"])
@pytest.mark.long
def test_a_command_that_kills_its_supervisor_ends_only_its_own_container(killing, tmp_path, env):
    (tmp_path / "beat").touch()

    async def main() -> None:
        sandbox = docker(tmp_path, env)
        try:
            end, _ = await said(sandbox, "sh", "-c", f"{killing}; sleep 60")
            assert (end.code, end.reason) == (137, "exit")
            assert (await said(sandbox, "echo", "again"))[1] == "again\n"
        finally:
            await sandbox.aclose()

    anyio.run(main)
    assert still(tmp_path / "beat")


@pytest.mark.long
def test_a_command_that_stops_its_supervisor_is_killed_at_its_timeout_all_the_same(tmp_path, env):
    script = "for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || kill -STOP ${p#/proc/}; done; sleep 60"
    end, _ = run(tmp_path, env, script, timeout=2.0)
    assert end.code == 137


def test_a_command_cannot_write_into_what_supervises_it(tmp_path, env):
    script = (
        "for p in /proc/[0-9]*; do echo x 2>/dev/null >$p/fd/1 && cat $p/comm; done; dd if=/proc/1/mem count=1; true"
    )
    _, text = run(tmp_path, env, script)
    assert "python3" not in text.split()
    assert "Permission denied" in text


@pytest.mark.long
def test_a_fork_bomb_is_held_and_ends_at_its_timeout(tmp_path, env):
    # exec: the bomb takes every process, so that a fork of ours may fail too
    end, _ = run(tmp_path, env, "f() { f | f & }; f & exec sleep 60", timeout=2.0)
    assert end.reason == "timeout"


def test_a_command_that_eats_all_memory_is_named_so(tmp_path, env):
    end, _ = run(tmp_path, env, "exec python3 -c 'x = bytearray(10**9)'")
    assert (end.code, end.reason) == (137, "memory")


def test_the_agents_folder_is_covered_and_what_git_runs_cannot_be_changed(tmp_path, env):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".lmagent").mkdir()
    (tmp_path / ".lmagent" / "secret").write_text("log")
    script = """
    cat .lmagent/secret || echo hidden; echo x >.lmagent/x || echo covered
    echo x >>.git/config || echo config; echo x >.git/hooks/pre-commit || echo hooks
    mv .git .old || echo fixed; touch .git/index.lock && echo index
    """
    _, text = run(tmp_path, env, script)
    assert [line for line in text.splitlines() if " " not in line] == [
        *("hidden", "covered", "config", "hooks", "fixed", "index")
    ]
    assert sorted(os.listdir(tmp_path / ".lmagent")) == ["secret"]


def test_a_config_that_the_user_replaced_is_protected_for_the_next_command(tmp_path, env):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)

    async def main() -> str:
        sandbox = docker(tmp_path, env)
        try:
            await said(sandbox, "true")
            await anyio.run_process(["git", "-C", str(tmp_path), "config", "user.name", "Me"])  # a new file by rename
            return (await said(sandbox, "sh", "-c", "echo x >>.git/config || echo held; cat .git/config"))[1]
        finally:
            await sandbox.aclose()

    text = anyio.run(main)
    assert "held" in text
    assert "name = Me" in text


def test_limits_and_the_network_are_part_of_what_a_container_is(tmp_path, env):
    _, text = run(tmp_path, env, "ls /sys/class/net; cat /proc/self/limits", limits=Limits(memory_mb=256, file_mb=7))
    assert text.split()[0] == "lo"
    assert str(7 * 1024 * 1024) in text
    _, text = run(tmp_path, env, "ls /sys/class/net", network="bridge")
    assert "eth0" in text.split()


@pytest.mark.parametrize("name", mostly_long(["a,b", 'quo"te', "co:lon", "spa ce", "grüß", "$x\nline"]))
def test_a_workspace_may_have_any_name(name, tmp_path, env):
    (tmp_path / name).mkdir()
    assert run(tmp_path / name, env, "echo x >made")[0].code == 0
    assert (tmp_path / name / "made").read_text() == "x\n"


GET = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except Exception as error:
    print(error)
"""


def test_a_command_reaches_the_hosts_that_are_allowed_and_no_others(tmp_path, env):
    def answer(client, _):
        client.sendall(OK)

    async def main(listed, other):
        asked = []

        async def decide(host, port):
            asked.append((host, port))
            return False

        async def get(at, **more):
            return (await said(sandbox, "python3", "-c", GET, f"http://{at}/", timeout=30, **more))[1].strip()

        sandbox = docker(tmp_path, env)
        try:
            with anyio.fail_after(60):
                allowed = {"hosts": (listed.at,), "decide": decide}
                reached = await get(listed.at, **allowed)
                refused = await get(other.at, **allowed)
                unknown = await get("example.test", **allowed)
                without = await get(listed.at)
            return reached, refused, unknown, without, asked
        finally:
            await sandbox.aclose()

    with serving(answer) as listed, serving(answer) as other:
        reached, refused, unknown, without, asked = anyio.run(main, listed, other)
        assert reached == "ok"
        assert "403" in refused
        assert "403" in unknown
        assert without.startswith("<urlopen error")
        assert asked == [("example.test", 80)]
        assert (len(listed.heads), len(other.heads)) == (1, 0)


@pytest.mark.skipif(not os.path.exists("/usr/bin/npm"), reason="needs npm of the system: it is not installed")
@pytest.mark.parametrize("allowed", [True, pytest.param(False, marks=pytest.mark.long)])
def test_packages_are_installed_from_the_users_registry_once_that_is_allowed(tmp_path, env, allowed):
    asked: list[str] = []

    async def ask(host: str, port: int) -> bool:
        asked.append(f"{host}:{port}")
        return allowed

    with registries() as local:
        packages = PackageHosts({"HOME": str(tmp_path), "npm_config_registry": local.npm}, tmp_path, listed=False)
        script = (
            "npm install --no-audit tinypkg && node node_modules/tinypkg/run.js; curl -sS http://example.test/ 2>&1"
        )
        more = {"env": packages.env, "opens": packages.opener("s1", ask)}

        async def main() -> str:
            sandbox = docker(tmp_path, env)
            try:
                return (await said(sandbox, "sh", "-c", script, timeout=120, **more))[1]
            finally:
                await sandbox.aclose()

        output = anyio.run(main)
        assert set(asked) == {local.place}
    assert "Blocked by lmagent: example.test:80 is not on the allow list" in output
    assert ("installed" in output.splitlines()) is allowed
    assert ("Blocked by lmagent: package registries are not allowed" in output) is not allowed
    assert (tmp_path / "node_modules" / "tinypkg").is_dir() is allowed
