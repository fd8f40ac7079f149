"""A start from the process that has the libraries is a start as Python makes it, but for what it has loaded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="starts are made as usual elsewhere")

SCRIPT = """
import atexit, json, os, signal, sys, threading, time

streams = [
    [type(one.buffer).__name__, one.encoding, one.errors, one.line_buffering, one.write_through, one.name]
    for one in (sys.stdin, sys.stdout, sys.stderr)
]
found = {
    "arguments": sys.argv, "folder": os.getcwd(), "path": sys.path[0], "environment": dict(os.environ),
    "parent": os.getppid(), "leads": os.getsid(0) == os.getpid(), "streams": streams, "input": sys.stdin.read(),
    "signals": [str(signal.getsignal(one)) for one in (signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)],
    "files": len(os.listdir("/proc/self/fd")), "threads": threading.active_count(), "gc": __import__("gc").isenabled(),
}
loaded = "httpcore" in sys.modules
atexit.register(lambda: os.write(1, b"end"))
threading.Thread(target=lambda: (time.sleep(0.1), print("thread", flush=True))).start()
print(json.dumps([found, loaded]))
sys.stdout.flush()
if "wait" in sys.argv:
    signal.pause()
sys.exit(7)
"""


def started(folder: Path, *before: str) -> tuple[dict[str, Any], bool, str, int]:
    """What a script sees, whether libraries are there that it did not load, what it wrote last, and its exit code."""
    script = folder / "a_victim.py"
    script.write_text(SCRIPT)
    command = [*before, sys.executable, str(script), "a b", "ä\udcff", ""]
    env = {**os.environ, "HOME": str(folder), "TZ": "Asia/Tokyo", "PYTHONPATH": "x:y"}
    how: Any = {"env": env, "cwd": folder, "start_new_session": True, "capture_output": True, "text": True}
    done = subprocess.run(command, input="typed\n", check=False, **how)
    assert done.stderr == ""
    line, _, end = done.stdout.partition("\n")
    found, loaded = json.loads(line)
    return found, loaded, end, done.returncode


def test_a_script_sees_and_does_the_same(tmp_path: Path) -> None:
    cheap, usual = started(tmp_path), started(tmp_path, "env")
    assert (cheap[1], usual[1]) == (True, False)
    assert cheap[0] == usual[0]
    assert cheap[2:] == usual[2:] == ("thread\nend", 7)


def test_it_is_a_child_that_a_signal_ends(tmp_path: Path) -> None:
    script = tmp_path / "a_victim.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "wait"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
