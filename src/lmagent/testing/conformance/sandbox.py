"""The suite of the Sandbox port."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio

from lmagent.core.ports import ExecResult, Sandbox

PRINT = ("sh", "-c", "echo out; echo err >&2; exit 3")
TOUCH = ("sh", "-c", "mkdir -p sub && printf data > sub/new.txt")
SLOW = ("sh", "-c", "echo begun; sleep 60")
KILLED = ("sh", "-c", "kill -TERM $$")
MISSING = ("no-such-command-anywhere",)
COMMANDS = (PRINT, TOUCH, SLOW, KILLED, MISSING)
"""Every command line that the suite runs."""


class SandboxConformance:
    """Subclass it and override `make`. The commands are POSIX shell."""

    def make(self) -> Sandbox:
        """A sandbox that works."""
        raise AssertionError("override make")

    def _run(self, argv: Sequence[str], workspace: Path, timeout: float = 10.0) -> tuple[ExecResult, str]:
        shown: list[str] = []

        async def main() -> ExecResult:
            with anyio.fail_after(20):
                return await self.make().run(argv, workspace=workspace, timeout=timeout, emit=shown.append)

        result = anyio.run(main)
        return result, "".join(shown)

    def test_it_says_what_it_promises(self) -> None:
        """By name, for a person to read."""
        assert self.make().promises.name

    def test_exit_status_and_both_outputs_come_back(self, tmp_path: Path) -> None:
        """And were shown while it ran."""
        result, shown = self._run(PRINT, tmp_path)
        assert result.exit_code == 3
        assert not result.timed_out
        for text in (result.output, shown):
            assert "out" in text
            assert "err" in text

    def test_a_command_works_in_the_workspace(self, tmp_path: Path) -> None:
        """What it writes there stays."""
        result, _ = self._run(TOUCH, tmp_path)
        assert result.exit_code == 0
        assert (tmp_path / "sub" / "new.txt").read_bytes() == b"data"

    def test_a_command_is_killed_at_its_timeout_and_keeps_its_output(self, tmp_path: Path) -> None:
        """With everything that it started."""
        result, _ = self._run(SLOW, tmp_path, timeout=0.3)
        assert result.timed_out
        assert "begun" in result.output

    def test_the_signal_that_ended_a_command_is_reported(self, tmp_path: Path) -> None:
        """As a negative number, or as a shell reports it."""
        result, _ = self._run(KILLED, tmp_path)
        assert result.exit_code in (-15, 143)
        assert not result.timed_out

    def test_a_command_that_does_not_exist_fails(self, tmp_path: Path) -> None:
        """As a shell reports it; it is no error of the sandbox."""
        result, _ = self._run(MISSING, tmp_path)
        assert result.exit_code == 127
