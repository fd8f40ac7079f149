"""Schedule: how late a waiting session wakes, also after a restart; and 1,000 tasks at once in 8 lanes.

python bench/schedule.py [--quick]

The server is scripted and in a process of its own. Late is the time from the moment that the model named to the event
that records the wake. The tasks are submitted before the scheduler starts; throughput counts from its start to the end
of the last turn. Peak memory is of the scheduler's process (VmHWM of /proc/PID/status).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lmagent.schedule.inbox import Inbox

LATEST, SESSIONS, LANES, STEPS = 1.0, 1000, 8, 3
SERVER = """
import sys, time
from lmagent.testing import ScriptedServer
from lmagent.testing.script import call, say
def answer(received):
    messages = received.body["messages"]
    said = [str(message.get("content")) for message in messages if message["role"] == "user"]
    last = messages[-1]
    if last["role"] == "user" and "wait until" in str(last.get("content")):
        return say("WAIT: " + str(last["content"]).rpartition("wait until ")[2].strip() + ": the bench")
    results = sum(message["role"] == "tool" for message in messages)
    return say("Done.") if results >= int(sys.argv[1]) else call("read", path="note.txt")
with ScriptedServer(answer, slots=64) as server:
    print(server.base_url, flush=True)
    sys.stdin.read()
"""


class Bench:
    """A workspace, its server, and schedulers."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        (self.workspace / "note.txt").write_text("a note\n")
        self.home = self.workspace / ".lmagent"
        self.env = {**os.environ, "HOME": str(folder), "LLM_RETRY_DELAY": "0", "LLM_MODEL": "scripted"}
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(steps)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.server.stdout is not None
        self.url = self.server.stdout.readline().strip()

    def scheduler(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "lmagent", "scheduler", "-w", str(self.workspace), "--base-url", self.url]
        return subprocess.Popen(command, env=self.env, stdout=subprocess.DEVNULL)

    def task(self, text: str) -> None:
        command = [sys.executable, "-m", "lmagent", "-w", str(self.workspace), "--base-url", self.url, text]
        subprocess.run(command, env=self.env, check=False, capture_output=True)

    def events(self, *kinds: str) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for path in self.home.glob("sessions/*/events.jsonl"):
            events = (json.loads(line) for line in path.read_bytes().splitlines())
            found[path.parent.name] = [event for event in events if event["type"] in kinds]
        return found

    def close(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait(10)
        assert self.server.stdout is not None
        self.server.stdout.close()


def peak_mb(process: subprocess.Popen[bytes]) -> float:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(30)


def wakes(folder: Path, count: int) -> dict[str, Any]:
    """Sessions that wait, some while a scheduler runs, some while it is killed and started anew."""
    bench = Bench(folder, 0)
    late: list[float] = []
    late_after_restart: list[float] = []
    process = bench.scheduler()
    try:
        for number in range(count):
            restarts = number % 2 == 1
            moment = int(time.time()) + 4
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
            bench.task(f"wait until {when}")
            if restarts:
                process.kill()
                process.wait()
                time.sleep(0.2)
                process = bench.scheduler()
            while time.time() < moment + 3:
                events = [event for log in bench.events("input.received").values() for event in log]
                woken = [event["ts"] for event in events if event.get("job", "").startswith("wait:")]
                if len(woken) == number + 1:
                    (late_after_restart if restarts else late).append(max(woken) - moment)
                    break
                time.sleep(0.05)
    finally:
        stop(process)
        bench.close()
    every = late + late_after_restart
    return {
        "woken": f"{len(every)} of {count}",
        "late_s_max": round(max(late, default=-1), 3),
        "late_s_max_after_restart": round(max(late_after_restart, default=-1), 3),
        "ok": len(every) == count and max(every) <= LATEST and min(every) >= 0,
    }


def many(folder: Path, sessions: int) -> dict[str, Any]:
    """Tasks of the inbox, all at once."""
    bench = Bench(folder, STEPS)
    inbox = Inbox(bench.home)
    for number in range(sessions):
        inbox.submit(f"task {number}", time.time())
    begun = time.time()
    process = bench.scheduler()
    peak = 0.0
    try:
        claimed = inbox.folder / "claimed"
        while time.time() < begun + 800:
            peak = max(peak, peak_mb(process))
            if claimed.is_dir() and not os.listdir(claimed) and not list(inbox.folder.glob("*.task")):
                break
            time.sleep(0.5)
    finally:
        stop(process)
        bench.close()
    logs = bench.events("input.received", "turn.started", "turn.finished", "step.started")
    ends = [event for log in logs.values() for event in log if event["type"] == "turn.finished"]
    whole = ["input.received", "turn.started", *["step.started"] * (STEPS + 1), "turn.finished"]
    ordered = sum([event["type"] for event in log] == whole for log in logs.values())
    seconds = max((event["ts"] for event in ends), default=begun) - begun
    return {
        "sessions": sessions,
        "done": sum(event["outcome"] == "done" for event in ends),
        "in_order": ordered,
        "lanes": LANES,
        "at_once": at_once(logs),
        "seconds": round(seconds, 1),
        "sessions_per_s": round(sessions / max(seconds, 0.001), 1),
        "steps_per_s": round(sessions * (STEPS + 1) / max(seconds, 0.001), 1),
        "peak_mb": peak,
        "ok": len(logs) == len(ends) == ordered == sessions,
    }


def at_once(logs: dict[str, list[dict[str, Any]]]) -> int:
    """The most turns that were open at a time."""
    marks = [
        (event["ts"], 1 if event["type"] == "turn.started" else -1)
        for log in logs.values()
        for event in log
        if event["type"] in ("turn.started", "turn.finished")
    ]
    most = now = 0
    for _, step in sorted(marks):
        now += step
        most = max(most, now)
    return most


def main() -> int:
    """Print the figures; exit 1 if a bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer wakes and tasks")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="lmagent-bench-") as folder:
        for name, work in (
            ("wakes", lambda path: wakes(path, 4 if given.quick else 12)),
            ("many", lambda path: many(path, 100 if given.quick else SESSIONS)),
        ):
            place = Path(folder) / name
            place.mkdir()
            figures[name] = work(place)
            print(f"{name}: {json.dumps(figures[name])}", file=sys.stderr, flush=True)
    figures["ok"] = all(part["ok"] for part in figures.values())
    print(json.dumps(figures))
    return 0 if figures["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
