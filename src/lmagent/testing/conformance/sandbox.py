"""The suite of the Sandbox port."""

from __future__ import annotations

from pathlib import Path

import anyio

from lmagent.core.sandbox import Exec, Exit, Running, Sandbox, Stream
from lmagent.testing.conformance.asynchronous import Asynchronous

PRINT = ("sh", "-c", "echo out; echo err >&2; exit 3")
TOUCH = ("sh", "-c", "mkdir -p sub && printf data > sub/new.txt")
SLOW = ("sh", "-c", "echo begun; sleep 60")
KILLED = ("sh", "-c", "kill -TERM $$")
MISSING = ("no-such-command-anywhere",)
CHANNEL = ("bash", "-c", "echo private >&$LMAGENT_CHANNEL")
COMMANDS = (PRINT, TOUCH, SLOW, KILLED, MISSING, CHANNEL)  # every command line that the suite runs


class SandboxConformance(Asynchronous):
    """Subclass it and override `make`. The commands are POSIX shell, but for one of bash."""

    def make(self, workspace: Path) -> Sandbox:
        """Return a working sandbox for this folder."""
        raise AssertionError("override make")

    async def _run(self, command: Exec, workspace: Path, *, kill: bool = False) -> tuple[Exit, dict[Stream, str]]:
        shown: dict[Stream, str] = {"stdout": "", "stderr": "", "channel": ""}
        begun = anyio.Event()

        def show(stream: Stream, piece: bytes) -> None:
            shown[stream] += piece.decode()
            begun.set()

        async def soon(running: Running) -> None:
            await begun.wait()
            running.kill()

        end: Exit | None = None
        sandbox = self.make(workspace)
        try:
            with anyio.fail_after(60):
                running = await sandbox.start(command, show)
                async with anyio.create_task_group() as tasks:
                    if kill:
                        tasks.start_soon(soon, running)
                    end = await running.wait()
        finally:
            await sandbox.aclose()
        assert end is not None
        return end, shown

    async def test_its_probe_names_the_backend_and_its_promises(self, tmp_path: Path) -> None:
        sandbox = self.make(tmp_path)
        try:
            report = await sandbox.probe()
        finally:
            await sandbox.aclose()
        assert report.backend
        assert report.promises

    async def test_exit_status_and_both_outputs_come_back(self, tmp_path: Path) -> None:
        end, shown = await self._run(Exec(PRINT), tmp_path)
        assert (end.code, end.reason) == (3, "exit")
        assert (shown["stdout"], shown["stderr"]) == ("out\n", "err\n")

    async def test_merged_errors_come_in_the_output(self, tmp_path: Path) -> None:
        _, shown = await self._run(Exec(PRINT, merge=True), tmp_path)
        assert (shown["stdout"], shown["stderr"]) == ("out\nerr\n", "")

    async def test_a_command_works_in_the_workspace(self, tmp_path: Path) -> None:
        end, _ = await self._run(Exec(TOUCH), tmp_path)
        assert end.code == 0
        assert (tmp_path / "sub" / "new.txt").read_bytes() == b"data"

    async def test_a_command_is_killed_at_its_timeout_and_its_output_is_kept(self, tmp_path: Path) -> None:
        end, shown = await self._run(Exec(SLOW, timeout=1.0), tmp_path)
        assert end.reason == "timeout"
        assert "begun" in shown["stdout"]

    async def test_a_command_can_be_killed(self, tmp_path: Path) -> None:
        end, _ = await self._run(Exec(SLOW), tmp_path, kill=True)
        assert end.reason == "killed"

    async def test_the_signal_that_ended_a_command_is_reported(self, tmp_path: Path) -> None:
        end, _ = await self._run(Exec(KILLED), tmp_path)
        assert (end.code, end.reason) == (143, "exit")

    async def test_a_command_that_does_not_exist_fails(self, tmp_path: Path) -> None:
        end, _ = await self._run(Exec(MISSING), tmp_path)
        assert end.code == 127

    async def test_the_private_channel_is_apart_from_the_output(self, tmp_path: Path) -> None:
        _, shown = await self._run(Exec(CHANNEL, channel=True), tmp_path)
        assert (shown["channel"], shown["stdout"]) == ("private\n", "")
