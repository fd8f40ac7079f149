"""Escapes by processes: hurt, read or outlive others."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
from escape_kit import Case, Ground, bash, run

from lmagent.core.sandbox import Exec, Sandbox
from lmagent.sandbox.limits import CGROUP

_VICTIM = ("victim",)
_BEAT = "for i in {1..60}; do date +%N >beat; sleep 0.05; done"


def _sh(name: str, script: str, **more) -> Case:
    return Case(f"process-{name}", "processes", "sh", script, **more)


def _py(name: str, script: str, **more) -> Case:
    return Case(f"process-{name}", "processes", "python", script, **more)


def _c(name: str, function: str, **more) -> Case:
    return Case(f"process-{name}", "processes", "c", f"processes {function}", **more)


def _beats(ground: Ground, *_: object) -> str:
    """Whether something still writes to the workspace."""
    beat = ground.here / "beat"
    beat.unlink(missing_ok=True)
    time.sleep(0.4)
    return "a process lives on and writes to the workspace" if beat.exists() else ""


async def _until_it_beats(ground: Ground) -> None:
    for _ in range(1000):  # seconds are longer where much is going on
        if (ground.here / "beat").exists():
            return
        await anyio.sleep(0.02)
    raise TimeoutError("it does not begin")


async def _killed(ground: Ground, sandbox: Sandbox) -> str:
    command = Exec(bash(f"trap '' TERM INT HUP; (setsid bash -c '{_BEAT}' &); sleep 6"), cwd=ground.here.name)
    running = await sandbox.start(command, lambda *_: None)
    async with anyio.create_task_group() as group:
        group.start_soon(running.wait)
        await _until_it_beats(ground)
        running.kill()
    return await anyio.to_thread.run_sync(_beats, ground)


async def _cancelled(ground: Ground, sandbox: Sandbox) -> str:
    command = Exec(bash(f"(setsid bash -c '{_BEAT}' &); sleep 6"), cwd=ground.here.name)
    running = await sandbox.start(command, lambda *_: None)
    async with anyio.create_task_group() as group:
        group.start_soon(running.wait)
        await _until_it_beats(ground)
        group.cancel_scope.cancel()
    return await anyio.to_thread.run_sync(_beats, ground)


async def _agent_killed(ground: Ground, _: Sandbox) -> str:
    """Another agent is killed, which cannot clean up."""
    plan = Path(os.environ["ESCAPE_PLAN"]).read_text()
    scratch = ground.base / "scratch"
    (scratch / "ws").mkdir(parents=True)
    ground.here = scratch / "ws"
    ground.note()
    own = ground.base.parent / "killed.json"
    own.write_text(plan.replace(ground.base.parent.parent.as_posix(), scratch.as_posix()))
    program = Path(__file__).with_name("escape_run.py")
    argv = [sys.executable, program, own, "beat"]
    agent = subprocess.Popen(argv, start_new_session=True)  # noqa: ASYNC220 - it is killed, not awaited
    try:
        await _until_it_beats(ground)
    finally:
        agent.kill()
        agent.wait()
    how = "it lives"
    with anyio.move_on_after(6):  # less than it would go on by itself
        while how:
            how = await anyio.to_thread.run_sync(_beats, ground)
    for group in CGROUP.glob(f"**/lmagent-{agent.pid}-*"):  # what a killed one cannot remove
        with contextlib.suppress(OSError):
            group.rmdir()
    return how


async def _stopped(ground: Ground, sandbox: Sandbox) -> str:
    """Everything stops itself, its group, and what it finds; the timeout must not wait for it."""
    began = anyio.current_time()
    script = "kill -STOP -- -$PPID $PPID 2>/dev/null; (setsid sh -c 'kill -STOP $$' &); kill -STOP 0; kill -STOP $$"
    ran = await run(ground, sandbox, bash(script), 0.7)
    if ran.end is None or ran.end.reason != "timeout" or anyio.current_time() - began > 15:
        return f"it ended otherwise: {ran.end}"
    return ""


_BEFORE_END = f"(setsid bash -c '{_BEAT}' >/dev/null 2>&1 </dev/null &)"

CASES = (
    _sh("kill", 'kill -9 "$VICTIM"; kill -TERM -- "-$VICTIM"', needs=_VICTIM),
    _sh("stop", 'kill -STOP "$VICTIM"', needs=_VICTIM),
    _sh("kill-agent", 'kill -USR1 "$AGENT" "$PPID"; kill -9 "$AGENT"', control="skip", own=True, ends=False),
    _sh("kill-all", "kill -9 -1", control="skip", own=True, ends=False),
    _c("kill-by-pidfd", "pidfd", needs=_VICTIM),
    _c("ptrace", "ptrace", needs=_VICTIM, control="root"),
    _c("ptrace-child", "ptrace_child"),
    _c("process-vm", "vm", needs=_VICTIM, control="root"),
    _c("process-vm-child", "vm_child"),
    _c("pidfd-getfd", "getfd", needs=_VICTIM, control="root"),
    _c("pidfd-getfd-own", "getfd_own"),
    _sh("environ", 'cat "/proc/$VICTIM/environ"', needs=_VICTIM),
    _py(
        "memory",
        """
for line in open(f"/proc/{E['VICTIM']}/maps") if os.path.exists(f"/proc/{E['VICTIM']}") else ():
    if "[stack]" in line:
        a, b = (int(x, 16) for x in line.split()[0].split("-"))
        print(os.pread(os.open(f"/proc/{E['VICTIM']}/mem", os.O_RDONLY), b - a, a))
""",
        needs=_VICTIM,
    ),
    _sh("descriptor", 'cat "/proc/$VICTIM/fd/0"', needs=_VICTIM),
    _sh("environ-of-the-agent", "cat /proc/$AGENT/environ /proc/$PPID/environ /proc/1/environ"),
    _sh("environ-of-all", "cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ"),
    _sh("list", 'for p in /proc/[0-9]*; do grep -qa "escape_[r]un.py" "$p/cmdline" && echo ESCAPED "$p"; done'),
    _sh("nice", 'renice -n 10 -p "$VICTIM"', needs=_VICTIM),
    _sh("nice-itself", "nice -n -5 true 2>&1 | grep -q cannot || echo ESCAPED", control="root"),
    _py(
        "limits-of-others",
        """
        import resource as r
        attempt(r.prlimit, int(E['VICTIM']), r.RLIMIT_NOFILE, (555, 5555))
        """,
        needs=_VICTIM,
    ),
    _py(
        "raise-own-limits",
        """
        import resource as r
        for n in (r.RLIMIT_NOFILE, r.RLIMIT_NPROC, r.RLIMIT_CORE): attempt(r.setrlimit, n, (1048575, 1048575))
        """,
        control="held",
    ),
    _py("affinity", "attempt(os.sched_setaffinity, int(E['VICTIM']), {0})", needs=_VICTIM),
    _c("io-priority", "ioprio", needs=_VICTIM),
    _py(
        "oom-score",
        """
def lower(process):
    file = os.open(f"/proc/{process}/oom_score_adj", os.O_WRONLY)
    return os.write(file, b"-1")
for process in ("self", E["AGENT"]): attempt(lower, process)
""",
        control="root",
    ),
    _py(
        "keeper",
        # The process that has to end the command must not be open to it: neither to write to nor to stop.
        """
for pid in filter(str.isdigit, os.listdir("/proc")):
    if pid != str(os.getpid()) and pid in ("1", str(os.getppid())): attempt(os.open, f"/proc/{pid}/mem", os.O_RDWR)
""",
        control="root",
    ),
    _sh("orphan", f"{_BEFORE_END}; ({_BEFORE_END} & ) & disown", proof=_beats),
    _sh("orphan-nohup", f"nohup bash -c '{_BEAT}' >/dev/null 2>&1 & sleep 0.1", proof=_beats),
    _sh(
        "orphan-holds-output",
        """
        (setsid sleep 40 &)
        """,
        proof=lambda _, ran: "" if ran.end.seconds < 20 else "the end waited",
        timeout=60,
        control="held",
    ),
    _sh("timeout", f"trap '' TERM INT; {_BEFORE_END}; sleep 6", proof=_beats, timeout=0.7, ends=False),
    _c("timeout-outlive", "outlive", proof=_beats, timeout=0.8, ends=False),
    Case("process-killed", "processes", "sh", act=_killed),
    Case("process-cancelled", "processes", "sh", act=_cancelled),
    Case("process-stopped", "processes", "sh", act=_stopped, own=True, control="skip"),
    Case("process-agent-killed", "processes", "sh", act=_agent_killed, own=True),
    _sh(
        "cron",
        """
        (crontab -l; echo '# lmagent') 2>/dev/null | crontab - && echo ESCAPED
        echo true | at now && echo ESCAPED
        """,
        control="skip",
    ),
    _sh(
        "systemd",
        """
        systemd-run --user true && echo ESCAPED
        systemd-run true && echo ESCAPED
        busctl list
        """,
        control="skip",
    ),
)
