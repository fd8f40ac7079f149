"""Abuse of resources: no command takes the host's memory, processes, files or time. Never run without a sandbox."""

from __future__ import annotations

import resource
import tempfile
import textwrap
from pathlib import Path

from escape_kit import Case, Ground, Ran, bash, run

from lmagent.core.sandbox import Exec, Limits, Sandbox
from lmagent.tools.shell.collect import Collector

_SMALL = Limits(memory_mb=128, pids=64, file_mb=16, tmp_mb=16)
SOON = 10
"""Seconds after which an end is no longer a timely one: far more than it takes, for the machine may be busy."""

_WATCHED = (
    "without a control group, the processes are watched from outside, and memory that is in none of their mappings (a "
    "memfd that was written, a segment that was detached) is nobody's; it is gone when the command ends"
)


def _py(name: str, script: str, **more) -> Case:
    kept = {"control": "skip", "own": True, "alone": True, "limits": _SMALL, "ends": False}
    return Case(f"resource-{name}", "resources", "python", script, **{**kept, **more})


def _sh(name: str, script: str, **more) -> Case:
    kept = {"control": "skip", "own": True, "alone": True, "limits": _SMALL, "ends": False}
    return Case(f"resource-{name}", "resources", "sh", script, **{**kept, **more})


def _holds(name: str, script: str, **more) -> Case:
    """It takes what it must not have, and looks whether it still lives a second later."""
    return _py(name, f"{textwrap.dedent(script)}\ntime.sleep(1)\nescaped('it holds it')", **more)


def _quick(_: Ground, ran: Ran) -> str:
    return (
        ""
        if ran.end and ran.end.reason == "timeout" and ran.end.seconds < 3
        else f"the timeout did not end it: {ran.end}"
    )


def _no_big_file(ground: Ground, _: Ran) -> str:
    sizes = {path.name: path.stat().st_size for path in ground.here.iterdir() if path.is_file()}
    big = {name: size for name, size in sizes.items() if size > 17 << 20}
    return f"files over the limit: {big}" if big else ""


async def _flood(ground: Ground, sandbox: Sandbox) -> str:
    """200 MB of output: it is read, the head and the tail are kept, and the agent does not grow."""
    with tempfile.TemporaryDirectory() as folder:
        collector = Collector(Path(folder), lambda _: None)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        command = Exec(bash("echo begin; head -c 200M /dev/zero | tr '\\0' x; echo end"), timeout=60)
        running = await sandbox.start(command, lambda _, piece: collector.feed(piece))
        end = await running.wait()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
        text, total = collector.text(), collector.total
        collector.discard()
    whole = total == (200 << 20) + 10 and text.startswith("begin") and text.endswith("end\n")
    return "" if grown < 64 and whole and end.code == 0 else f"grown by {grown} MB, {total} bytes, {end}"


async def _two_floods(ground: Ground, sandbox: Sandbox) -> str:
    """Endless output must not keep the timeout from coming."""
    ran = await run(ground, sandbox, bash("yes & yes >&2 & (setsid yes &) ; wait"), 1.0)
    return _quick(ground, ran)


_FORKS = """
made = 0
for n in range(300):
    try: pid = os.fork()
    except OSError as error: print(error); break
    if not pid: time.sleep(3); os._exit(0)
    made += 1
print(made, flush=True)
if made > 128: escaped(made, "processes")
"""
CASES = (
    _py("forks", _FORKS),
    _sh(
        "fork-tree",
        """
        f() { sleep 2 & (( $1 > 0 )) && { f $(($1 - 1)) & f $(($1 - 1)) & }; wait; }
        f 7 2>/dev/null
        wait
        """,
        timeout=4,
        proof=lambda _, ran: "" if ran.end.seconds < 4 + SOON else "it went on",
    ),
    _py(
        "threads",
        """
        import threading
        n = 0
        try:
            for n in range(400): threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
        except RuntimeError as e: print(n, e)
        if n > 128: escaped(n, 'threads')
        """,
    ),
    _holds("memory", "x = bytearray(400 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1"),
    _py(
        "memory-group",
        """
        held, holds = os.pipe()
        for _ in range(6):
            if not os.fork():
                x = bytearray(60 << 20)
                for i in range(0, len(x), 4096): x[i] = 1
                os.write(holds, b"1"); time.sleep(3)
                os.write(holds, b"1"); os._exit(0)
        os.close(holds)
        if len(b"".join(iter(lambda: os.read(held, 64), b""))) == 12: escaped("360 MB by six")
        """,
    ),
    _holds(
        "memory-shared",
        """
        import mmap
        x = mmap.mmap(-1, 300 << 20)
        for i in range(0, len(x), 4096): x[i] = 1
        """,
    ),
    _holds(
        "memory-memfd",
        """
        f = [os.memfd_create('x') for _ in range(30)]
        for g in f:
            for _ in range(10): os.write(g, b'1' * (1 << 20))
        """,
        known={"ungrouped": _WATCHED},
    ),
    _holds(
        "memory-segment",
        """
        f = libc.shmat
        f.restype = ctypes.c_void_p
        for _ in range(30):
            s = libc.shmget(0, 10 << 20, 0o1600)
            a = f(s, 0, 0)
            ctypes.memset(a, 1, 10 << 20)
            libc.shmdt(ctypes.c_void_p(a))
        """,
        known={"ungrouped": _WATCHED},
    ),
    _holds(
        "memory-locked",
        """
        import mmap, resource
        x = mmap.mmap(-1, 300 << 20, flags=0x22)
        print(libc.mlockall(3))
        for i in range(0, len(x), 4096): x[i] = 1
        """,
    ),
    _py(
        "tmpfs",
        """
        n = 0
        try:
            with open('/tmp/x', 'wb', 0) as f, open('/tmp/y', 'wb', 0) as g:
                for n in range(64): (f if n % 2 else g).write(b'1' * (1 << 20))
        except OSError as e: print(n, e)
        if n > 20: escaped(n, 'MB in /tmp')
        """,
    ),
    _py(
        "tmpfs-shm",
        """
        n = 0
        try:
            for n in range(150): open(f'/dev/shm/{n}', 'wb').write(b'1' * (1 << 20))
        except OSError as e: print(n, e)
        if n > 70: escaped(n, 'MB in /dev/shm')
        """,
    ),
    _py(
        "tmpfs-names",
        """
        n = 0
        try:
            for n in range(120_001): os.close(os.open(f'/tmp/{n}', os.O_CREAT | os.O_WRONLY))
        except OSError as e: print(n, e)
        if n >= 120_000: time.sleep(2); escaped(n, 'files in /tmp')
        """,
        timeout=25,
        limits=Limits(memory_mb=64, pids=64, file_mb=16, tmp_mb=16),
    ),
    _sh(
        "file",
        """
        head -c 64M /dev/zero >big
        truncate -s 64M sparse
        fallocate -l 64M allocated
        dd if=/dev/zero of=far bs=1 count=1 seek=64M
        """,
        proof=_no_big_file,
    ),
    _py(
        "descriptors",
        """
        import resource as r
        n = 0
        try:
            while n < 10_000: os.open('/dev/null', os.O_RDONLY); n += 1
        except OSError as e: print(n, e)
        if n > 4096: escaped(n, 'descriptors')
        """,
    ),
    _sh("spin", "while :; do :; done & while :; do :; done", timeout=1.0, proof=_quick),
    _sh("sleeps-on", "trap '' TERM INT HUP QUIT USR1; while :; do sleep 60; done", timeout=1.0, proof=_quick),
    _sh(
        "waits-for-input",
        """
        cat
        read x
        python3 -c 'input()'
        """,
        timeout=5.0,
        proof=lambda _, ran: "" if ran.end.reason == "exit" else "it waited for input",
    ),
    Case("resource-output", "resources", "sh", act=_flood, own=True, alone=True, control="skip", timeout=60),
    Case("resource-output-without-end", "resources", "sh", act=_two_floods, own=True, alone=True, control="skip"),
)
