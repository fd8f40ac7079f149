"""The supervisor over pipes, beside a container: what it does with output, channels, and its own end."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import CHANNEL, Exec
from lmagent.sandbox.inside import program
from lmagent.sandbox.limits import tree
from lmagent.sandbox.link import Link, Remote

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: subreapers and /proc")


async def nothing() -> bool:
    """There is no container to remove."""
    return True


def linked(use: Callable[[Link], Awaitable[None]]) -> None:
    async def main() -> None:
        link = Link([sys.executable, *program("supervisor", "serve")], dict(os.environ), nothing)
        try:
            with anyio.fail_after(60):
                await link.greet({"filters": {}, "mounts": []}, 20)
                await use(link)
        finally:
            await link.close(remove=False)

    anyio.run(main)


async def kept(link: Link) -> None:
    """Its next command has it again."""


async def start(link: Link, script: str, output=lambda *_: None, *, timeout: float = 30.0, **more) -> Remote:
    command = Exec(("sh", "-c", script), timeout=timeout, **more)
    request = {"argv": command.argv, "cwd": "/", "env": {"PATH": os.environ["PATH"], **command.env}}
    request |= {"merge": command.merge, "channel": CHANNEL if command.channel else ""}
    remote = Remote(link, command, output, kept)
    await remote.begin(request)
    return remote


def alive(marker: str) -> bool:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


def test_100_megabytes_of_output_pass_without_growing(tmp_path):
    counts = {"stdout": 0, "stderr": 0}

    def count(stream: str, piece: bytes) -> None:
        counts[stream] += len(piece)

    async def use(link: Link) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        end = await (await start(link, "head -c 100000000 /dev/zero; echo done >&2", count)).wait()
        assert end.code == 0
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
        status = Path(f"/proc/{link.popen.pid}/status").read_text()
        assert int(status.partition("VmHWM:")[2].split()[0]) < 64 * 1024

    linked(use)
    assert counts == {"stdout": 100_000_000, "stderr": 5}


def test_a_command_whose_output_nobody_takes_waits_and_can_still_be_killed():
    async def use(link: Link) -> None:
        flood = await start(link, "head -c 100000000 /dev/zero", timeout=5)
        await anyio.sleep(0.5)
        flood.kill()
        assert (await flood.wait()).reason == "killed"

    linked(use)


def test_a_channel_carries_any_bytes_both_ways_and_does_not_run_over():
    received, complete = bytearray(), anyio.Event()

    def take(stream: str, piece: bytes) -> None:
        if stream == "channel":
            received.extend(piece)
        if len(received) == len(data):
            complete.set()

    echo = "import os, socket; s = socket.socket(fileno=int(os.environ['LMAGENT_CHANNEL']))\n"
    echo += "while p := s.recv(99999): s.sendall(p)"
    data = os.urandom(3_000_000)

    async def use(link: Link) -> None:
        running = await start(link, f'exec {sys.executable} -c "{echo}"', take, channel=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.wait)
            await running.send(data)
            await complete.wait()
            running.kill()

    linked(use)
    assert received == data


def test_a_channel_that_the_command_closed_is_an_error_for_who_sends():
    async def use(link: Link) -> None:
        running = await start(link, 'eval "exec $LMAGENT_CHANNEL>&-"; echo closed; sleep 60', channel=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.wait)
            await anyio.sleep(0.3)
            with pytest.raises(SandboxError, match="does not listen"):
                await running.send(b"x" * 3_000_000)
            running.kill()

    linked(use)


def test_a_big_command_and_one_that_is_too_big_are_told_apart():
    async def use(link: Link) -> None:
        seen: list[bytes] = []
        end = await (await start(link, f": {'x' * 120_000}; echo fine", lambda _, piece: seen.append(piece))).wait()
        assert (end.code, seen) == (0, [b"fine\n"])
        seen.clear()
        end = await (await start(link, "x" * 1_000_000, lambda _, piece: seen.append(piece))).wait()
        assert (end.code, b"too long" in b"".join(seen)) == (126, True)

    linked(use)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_keeper_that_is_killed_or_stopped_takes_its_command_with_it(number):
    marker = f"sleep 71.{os.getpid()}{int(number)}"

    async def use(link: Link) -> None:
        running = await start(link, f"(setsid {marker} &) ; kill -{int(number)} $PPID; {marker}", timeout=2)
        end = await running.wait()
        assert (end.code, end.reason) == (137, "exit" if number == signal.SIGKILL else "timeout")
        assert not alive(marker)
        if number == signal.SIGKILL:
            assert (await (await start(link, "exit 5")).wait()).code == 5

    linked(use)


def test_the_end_of_the_supervisors_input_ends_everything():
    marker = f"sleep 72.{os.getpid()}"

    async def main() -> None:
        link = Link([sys.executable, *program("supervisor", "serve")], dict(os.environ), nothing)
        await link.greet({"filters": {}, "mounts": []}, 20)
        running = await start(link, f"(setsid setsid {marker} &); {marker}")
        for _ in range(100):
            if alive(marker):
                break
            await anyio.sleep(0.05)
        link.hang_up()
        with pytest.raises(SandboxError):
            await running.wait()
        assert link.popen.wait() == 0

    anyio.run(main)
    assert not alive(marker)


def test_an_output_that_raises_raises_in_the_wait_and_ends_the_command():
    marker = f"sleep 73.{os.getpid()}"

    def fail(*_: object) -> None:
        raise ValueError("mine")

    async def use(link: Link) -> None:
        with pytest.raises(ValueError, match="mine"):
            await (await start(link, f"echo bad; {marker}", fail)).wait()
        assert not alive(marker)

    linked(use)


@pytest.mark.long
def test_no_descriptor_and_no_process_is_left_after_a_hundred_commands():
    async def use(link: Link) -> None:
        for number in range(100):
            assert (await (await start(link, f"sleep 9 & exit {number % 3}")).wait()).code == number % 3
        assert len(os.listdir(f"/proc/{link.popen.pid}/fd")) < 24
        assert list(tree(link.popen.pid)) == [link.popen.pid]

    linked(use)


def test_what_is_no_frame_ends_the_connection():
    async def main() -> None:
        link = Link(["sh", "-c", "echo this is no frame; cat"], dict(os.environ), nothing)
        with pytest.raises(SandboxError, match="does not answer"):
            await link.greet({}, 20)
        await link.close(remove=True)

    anyio.run(main)
