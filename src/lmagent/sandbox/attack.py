"""Tests a sandbox from inside, by attempts to do harm that must fail. `which bwrap` proves nothing.

The script attempts forbidden actions in ways that do no damage if they succeed: files are opened and not written, a
connection is made to a listener of ours.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

from msgspec.structs import replace

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Limits, Promise, Sandbox, SandboxReport, Stream

SECONDS = 20.0
REQUIRED = ("files", "network", "processes")
"""The properties that a sandbox must have."""

ATTEMPTS = (
    *("files.read", "files.write", "files.system", "files.accounts", "network", "processes"),
    *("kernel.settings", "kernel.namespaces", "kernel.mounts"),
)

SCRIPT = r"""
canary=$1 port=$2 pid=$3 namespace=$4
report() { printf '%s=%s\n' "$1" "$2"; }
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then report "$name" open; else report "$name" held; fi; }
try files.read cat "$canary"
try files.write sh -c ': >>"$1".new' sh "$canary"
try files.system sh -c 'for d in /usr /etc; do f=$d/.lmagent-probe; true >>$f && rm $f && exit 0; done; exit 1'
try files.accounts sh -c 'cat /etc/shadow | grep -q .'
if command -v bash >/dev/null; then try network bash -c "exec 3<>/dev/tcp/127.0.0.1/$port"
elif command -v python3 >/dev/null; then
  try network python3 -c "import socket; socket.create_connection(('127.0.0.1', $port), 2)"
else report network untried; fi
try processes sh -c 'test "$(readlink /proc/self/ns/pid)" = "$1" || kill -0 "$2"' sh "$namespace" "$pid"
try kernel.settings sh -c ': >>/proc/sys/kernel/core_pattern'
try kernel.namespaces unshare -U true
try kernel.mounts sh -c 'for d in /mnt /tmp; do mount -t tmpfs probe $d && umount $d && exit 0; done; exit 1'
try workspace sh -c ': >.lmagent-probe && rm .lmagent-probe'
env
"""


async def attack(sandbox: Sandbox, report: SandboxReport, limits: Limits, how: str) -> SandboxReport:
    """Return the report, completed with the results; `how` is the means of enforcing `limits`, empty without one."""
    try:
        held, printed = await _run(sandbox)
    except SandboxError as failure:
        fix = _foreign_fix(sandbox.workspace) or failure.fix
        return replace(report, works=False, reason=str(failure.args[0]), fix=fix)
    promises = (*_promises(held, printed), _limit_promise(limits, how))
    if held["workspace"]:  # "held" means that the attempt failed, and writing here must not fail
        reason, fix = "the workspace cannot be written from inside", _foreign_fix(sandbox.workspace)
        return replace(report, works=False, promises=promises, reason=reason, fix=fix)
    broken = [f"{made.name}: {made.detail}" for made in promises if made.name in REQUIRED and not made.kept]
    return replace(report, works=not broken, promises=promises, reason="; ".join(broken))


def _foreign_fix(workspace: Path) -> str:
    """Return the fix for root in another user's folder: inside the sandbox, root has no rights over that folder."""
    owner = workspace.stat().st_uid
    if os.geteuid() != 0 or owner == 0:
        return ""
    return f"the workspace belongs to user {owner}: run lmagent as that user, or chown it to root"


async def _run(sandbox: Sandbox) -> tuple[dict[str, bool], str]:
    """Return the attempts that failed, and the whole output."""
    said: list[bytes] = []

    def note(stream: Stream, piece: bytes) -> None:
        if stream == "stdout":
            said.append(piece)

    with tempfile.TemporaryDirectory(prefix="lmagent-") as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        canary = Path(folder, "canary")
        canary.write_text("a file of the host")
        arguments = (str(canary), str(listener.getsockname()[1]), str(os.getpid()), _pid_namespace())
        command = Exec(("/bin/sh", "-c", SCRIPT, "sh", *arguments), timeout=SECONDS)
        running = await sandbox.start(command, note)
        end = await running.wait()
    lines = b"".join(said).decode("utf-8", "replace").splitlines()
    held = {name: value == "held" for name, _, value in (line.partition("=") for line in lines) if value in _WORDS}
    if "workspace" not in held:
        raise SandboxError(f"the probe did not come to its end (it ended with {end.code}, {end.reason})")
    return held, "\n".join(lines)


_WORDS = ("held", "open", "untried")


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return "none"


_KEPT = {
    "files": "nothing outside the workspace can be read or written but programs",
    "network": "no connection leaves it",
    "processes": "no other process can be seen or signalled",
    "kernel": "no settings, namespaces or mounts can be changed",
}


def _promises(held: dict[str, bool], printed: str) -> list[Promise]:
    promises: list[Promise] = []
    for name, detail in _KEPT.items():
        tried = [part for part in ATTEMPTS if part.partition(".")[0] == name]
        failed = [part for part in tried if not held.get(part, False)]
        promises.append(Promise(name, not failed, f"open: {', '.join(failed)}" if failed else detail))
    leaked = [
        name
        for name, value in os.environ.items()
        if len(value) >= 8 and any(word in name.upper() for word in ("KEY", "TOKEN", "SECRET", "PASSWORD"))
        if value in printed
    ]
    detail = f"seen inside: {', '.join(leaked)}" if leaked else "no key or token of this process is seen inside"
    return [*promises, Promise("environment", not leaked, detail)]


def _limit_promise(limits: Limits, how: str) -> Promise:
    if not how:
        return Promise("limits", False, "memory and processes are not limited")
    return Promise("limits", True, f"{limits.memory_mb} MiB memory, {limits.pids} processes, by {how}")
