"""The suite of the Sandbox port."""

from __future__ import annotations

from pathlib import Path

import anyio

from lmagent.core.sandbox import Exec, Exit, Sandbox, Stream

PRINT = ("sh", "-c", "echo out; echo err >&2; exit 3")
TOUCH = ("sh", "-c", "mkdir -p sub && printf data > sub/new.txt")
SLOW = ("sh", "-c", "echo begun; sleep 60")
KILLED = ("sh", "-c", "kill -TERM $$")
MISSING = ("no-such-command-anywhere",)
CHANNEL = ("bash", "-c", "echo private >&$LMAGENT_CHANNEL")
COMMANDS = (PRINT, TOUCH, SLOW, KILLED, MISSING, CHANNEL)
"""Every command line that the suite runs."""


class SandboxConformance:
    """Subclass it and override `make`. The commands are POSIX shell, but for one of bash."""

    def make(self, workspace: Path) -> Sandbox:
        """Return a working sandbox for this folder."""
        raise AssertionError("override make")

    def _run(self, command: Exec, workspace: Path, *, kill: bool = False) -> tuple[Exit, dict[Stream, str]]:
        shown: dict[Stream, str] = {"stdout": "", "stderr": "", "channel": ""}

        begun = anyio.Event()

        def show(stream: Stream, piece: bytes) -> None:
            shown[stream] += piece.decode()
            begun.set()

        async def main() -> Exit:
            sandbox = self.make(workspace)
            try:
                with anyio.fail_after(60):
                    running = await sandbox.start(command, show)
                    if kill:
                        async with anyio.create_task_group() as tasks:

                            async def soon() -> None:
                                await begun.wait()
                                running.kill()

                            tasks.start_soon(soon)
                            return await running.wait()
                    return await running.wait()
            finally:
                await sandbox.aclose()

        return anyio.run(main), shown

    def test_its_probe_names_the_backend_and_its_promises(self, tmp_path: Path) -> None:
        """As data."""

        async def main() -> None:
            sandbox = self.make(tmp_path)
            try:
                report = await sandbox.probe()
            finally:
                await sandbox.aclose()
            assert report.backend
            assert report.promises

        anyio.run(main)

    def test_exit_status_and_both_outputs_come_back(self, tmp_path: Path) -> None:
        """Each as its own stream."""
        end, shown = self._run(Exec(PRINT), tmp_path)
        assert (end.code, end.reason) == (3, "exit")
        assert (shown["stdout"], shown["stderr"]) == ("out\n", "err\n")

    def test_merged_errors_come_in_the_output(self, tmp_path: Path) -> None:
        """In order."""
        _, shown = self._run(Exec(PRINT, merge=True), tmp_path)
        assert (shown["stdout"], shown["stderr"]) == ("out\nerr\n", "")

    def test_a_command_works_in_the_workspace(self, tmp_path: Path) -> None:
        """The files that it writes there stay."""
        end, _ = self._run(Exec(TOUCH), tmp_path)
        assert end.code == 0
        assert (tmp_path / "sub" / "new.txt").read_bytes() == b"data"

    def test_a_command_is_killed_at_its_timeout_and_its_output_is_kept(self, tmp_path: Path) -> None:
        """With everything that it started."""
        end, shown = self._run(Exec(SLOW, timeout=1.0), tmp_path)
        assert end.reason == "timeout"
        assert "begun" in shown["stdout"]

    def test_a_command_can_be_killed(self, tmp_path: Path) -> None:
        """While it runs."""
        end, _ = self._run(Exec(SLOW), tmp_path, kill=True)
        assert end.reason == "killed"

    def test_the_signal_that_ended_a_command_is_reported(self, tmp_path: Path) -> None:
        """As a shell reports it."""
        end, _ = self._run(Exec(KILLED), tmp_path)
        assert (end.code, end.reason) == (143, "exit")

    def test_a_command_that_does_not_exist_fails(self, tmp_path: Path) -> None:
        """As a shell reports it; it is no error of the sandbox."""
        end, _ = self._run(Exec(MISSING), tmp_path)
        assert end.code == 127

    def test_the_private_channel_is_apart_from_the_output(self, tmp_path: Path) -> None:
        """Whatever the command prints."""
        _, shown = self._run(Exec(CHANNEL, channel=True), tmp_path)
        assert (shown["channel"], shown["stdout"]) == ("private\n", "")
