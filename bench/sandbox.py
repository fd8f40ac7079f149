"""The sandbox, timed and tried; JSON on standard output.

    python bench/sandbox.py [--quick]

`true` is a command through the sandbox against a plain `bash -c true`, in turns. `step` is what the agent adds to a
command: from the end of the model's reply to the next request, less the time of the sandboxed command itself, taken
from the session's log. `flood` prints 400 MB through the shell tool. `kills` ends commands that resist in three ways
and looks for anything that still writes. Exit code 1 if a bar does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

from lmagent.app.confined import Confined
from lmagent.config.settings import Settings
from lmagent.core import events as ev
from lmagent.core.sandbox import Exec
from lmagent.core.tool import ToolContext
from lmagent.sandbox.docker import Docker, build_local_image
from lmagent.sandbox.environment import SandboxRequest
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say
from lmagent.tools.shell import Shell, ShellRunner
from lmagent.tools.shell.jobs import Jobs

DOCKERD = str(Path(__file__).resolve().parents[1] / "scripts" / "dockerd.sh")
IMAGE = "lmagent-sandbox-bench"
BARS = {"true.ratio": 10.0, "docker.added_ms": 5.0, "step.added_ms": 15.0, "flood.rss_growth_mb": 64.0, "kills.left": 0}
FLOOD = "yes 0123456789abcdef | head -c 400M"
STUBBORN = "trap '' TERM INT HUP; (setsid sh -c 'while :; do date > beat; sleep 0.05; done' &); sleep 60"


async def true(workspace: Path, runs: int) -> dict[str, Any]:
    """Median times in milliseconds."""
    sandbox = await Confined(workspace, Settings()).get()
    confined, plain = list[float](), list[float]()
    for _ in range(runs):
        begun = time.perf_counter()
        await (await sandbox.start(Exec(("bash", "-c", "true")), lambda *_: None)).wait()
        middle = time.perf_counter()
        subprocess.run(["bash", "-c", "true"], check=True)  # noqa: ASYNC221  nothing else runs in this loop
        plain.append(time.perf_counter() - middle)
        confined.append(middle - begun)
    ours, theirs = statistics.median(confined), statistics.median(plain)
    return {"ms": round(ours * 1000, 1), "plain_ms": round(theirs * 1000, 2), "ratio": round(ours / theirs, 1)}


async def docker(workspace: Path, runs: int) -> dict[str, Any]:
    """Dispatch of a command into the container once it runs, over a plain `bash -c`; medians in milliseconds.

    An engine that answers is used; as root, one is started and ended again. Without any, it says so.
    """
    started, env = False, dict(os.environ)
    if subprocess.run(["docker", "version"], env=env, capture_output=True, check=False).returncode:  # noqa: ASYNC221
        begun = subprocess.run([DOCKERD, "start", str(os.getpid())], capture_output=True, text=True, check=False)  # noqa: ASYNC221
        if begun.returncode:
            return {"skipped": f"no engine answers, and none can be started: {begun.stderr.strip()}", "added_ms": 0.0}
        started, env["DOCKER_HOST"] = True, begun.stdout.strip()
    try:
        build_local_image(IMAGE, env)
        sandbox = Docker(workspace, SandboxRequest(env=env, image=IMAGE))
        inside, plain = list[float](), list[float]()
        for _ in range(runs + 3):
            begin = time.perf_counter()
            await (await sandbox.start(Exec(("bash", "-c", "true")), lambda *_: None)).wait()
            middle = time.perf_counter()
            subprocess.run(["bash", "-c", "true"], check=True)  # noqa: ASYNC221
            plain.append(time.perf_counter() - middle)
            inside.append(middle - begin)
        await sandbox.aclose()
    finally:
        if started:
            subprocess.run([DOCKERD, "stop", str(os.getpid())], check=True)  # noqa: ASYNC221
    ours, theirs = statistics.median(inside[3:]) * 1000, statistics.median(plain[3:]) * 1000
    return {"ms": round(ours, 2), "plain_ms": round(theirs, 2), "added_ms": round(ours - theirs, 2)}


def step(workspace: Path, steps: int) -> dict[str, Any]:
    """What the agent adds to a command, median in milliseconds."""
    for number in range(200):
        (workspace / f"{number}.txt").write_text(f"{number}\n")
    script = [*(call("shell", command=f"echo {number}; ls | wc -l") for number in range(steps)), say("Done.")]
    with ScriptedServer(script) as server, tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "lmagent", "count", "-w", str(workspace), "--permission", "auto"]
        environment = {"PATH": os.environ["PATH"], "HOME": home}
        subprocess.run(
            [*command, "--base-url", server.base_url],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
    (log,) = workspace.glob(".lmagent/sessions/*/events.jsonl")
    added = list[float]()
    ended = seconds = 0.0
    for event in map(ev.decode, log.read_bytes().splitlines()):
        if isinstance(event, ev.StepFinished):
            ended = event.ts
        elif isinstance(event, ev.ToolFinished):
            seconds = event.data["seconds"]
        elif isinstance(event, ev.StepStarted) and ended:
            added.append(event.ts - ended - seconds)
    # The first command of a session also looks for the sandbox and takes the first snapshot.
    return {"added_ms": round(statistics.median(added[1:]) * 1000, 1), "first_ms": round(added[0] * 1000, 1)}


async def flood(workspace: Path) -> dict[str, Any]:
    """Memory that 400 MB of output take, in MB."""
    confined, spill = Confined(workspace, Settings()), workspace / ".lmagent" / "spill"
    runner = ShellRunner(confined.get, lambda _: (), spill, Jobs(spill))
    context = ToolContext("s", "c", workspace, {}, lambda _: None)
    await runner.run(Shell("true"), context)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    output = await runner.run(Shell(FLOOD), context)
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 1e6
    assert output.file is not None
    kept = output.file.stat().st_size
    output.file.unlink()
    return {
        "rss_growth_mb": round(growth, 1),
        "seconds": output.data["seconds"],
        "told_bytes": len(output.content),
        "kept_mb": round(kept / 1e6, 1),
    }


def kills(folder: Path) -> dict[str, Any]:
    """Commands that resist, ended in three ways; `left` counts those that still write two seconds later."""
    found = {how: _survives(folder / how, how) for how in ("timeout", "interrupt", "sigkill")}
    return {
        "left": sum(left for left, _ in found.values()),
        **{how: round(took, 2) for how, (_, took) in found.items()},
    }


def _survives(workspace: Path, how: str) -> tuple[bool, float]:
    workspace.mkdir()
    limit = ["--timeout", "1"] if how == "timeout" else []
    command = [sys.executable, "-m", "lmagent", "sandbox", "exec", "-w", str(workspace), *limit]
    agent = subprocess.Popen(
        [*command, "--", "sh", "-c", STUBBORN], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 20
    while not (workspace / "beat").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    begun = time.monotonic()
    if how != "timeout":
        agent.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
    agent.wait()
    took = time.monotonic() - begun
    time.sleep(max(0.0, 2.0 - took))
    (workspace / "beat").unlink(missing_ok=True)
    time.sleep(0.3)
    return (workspace / "beat").exists(), took


def main() -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(description="Measure the sandbox.")
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("flood", "true", "step", "docker"):
            (folder / part).mkdir()
        figures: dict[str, Any] = {
            "flood": anyio.run(flood, folder / "flood"),
            "true": anyio.run(true, folder / "true", 10 if quick else 30),
            "docker": anyio.run(docker, folder / "docker", 10 if quick else 30),
            "step": step(folder / "step", 6 if quick else 21),
            "kills": kills(folder),
        }
    missed = {bar: limit for bar, limit in BARS.items() if figures[bar.split(".")[0]][bar.split(".")[1]] > limit}
    print(json.dumps({"ok": not missed, "bars": BARS, "missed": missed, **figures}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
