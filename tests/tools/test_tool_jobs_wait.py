"""jobs wait until=REGEX: every line is looked at, once, and no pattern stops the agent."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import anyio
import pytest
from shell_kit import Bench, during

from lmagent.core.errors import ToolError

sandboxed = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def found(bench: Bench, command: str, until: str, timeout: int = 20) -> tuple[str, dict[str, object]]:
    """What a wait for a line of a job says."""

    async def act() -> tuple[str, dict[str, object]]:
        await bench.shell(command, background=True)
        output = await bench.waited(until=until, timeout=timeout)
        return output.content.partition("\n")[0], output.data

    return during(bench, act)


@sandboxed
@pytest.mark.parametrize(
    "command",
    [
        "echo before; echo READY; echo after; sleep 60",
        "echo before; sleep 1; echo READY; sleep 60",
        "echo READY; seq 1 3000; sleep 60",
        "echo READY; seq 1 500000; sleep 60",
        "seq 1 500000; printf 'READY\\r\\n'; sleep 60",
        "printf 'before\\nREADY'; sleep 60",
        "printf REA; sleep 1; printf DY; sleep 60",
        "printf '10%%\\r99%%\\rREADY\\n\\n'; sleep 60",
        "printf '\\033[32mREADY\\033[0m\\n'; sleep 60",
        "sleep 0.5; echo READY",
    ],
)
def test_a_whole_line_is_found_wherever_it_stands(bench, command):
    told, data = found(bench, command, "^READY$")
    assert "a line matches: READY)" in told
    assert data["met"] is True


@sandboxed
def test_a_job_that_ends_without_the_line_is_not_met(bench):
    told, data = found(bench, "sleep 0.5; echo other", "READY")
    assert told.startswith("job1: exit code 0 after ")
    assert "it has ended without such a line" in told
    assert data == {"job": "job1", "state": data["state"], "met": False, "ended": True}


@sandboxed
def test_a_wait_in_vain_is_neither_met_nor_ended(bench):
    told, data = found(bench, "echo other; sleep 60", "READY", timeout=1)
    assert "waited 1 s in vain" in told
    assert data == {"job": "job1", "state": "running", "met": False, "ended": False}


@sandboxed
def test_each_line_counts_once_for_a_pattern(bench):
    async def act() -> None:
        await bench.shell(
            "echo hit 1; echo hit 2; printf 'hit 3'; sleep 4; echo ' more'; echo hit 4; sleep 60", background=True
        )
        for number in (1, 2, 3):
            assert f"a line matches: hit {number})" in (await bench.waited(until="hit", timeout=0)).content
        vain = await bench.waited(until="hit", timeout=0)
        assert "in vain)" in vain.content
        assert "a line matches: hit 4)" in (await bench.waited(until="hit", timeout=20)).content
        assert "a line matches: hit 2)" in (await bench.waited(until="hit 2", timeout=0)).content
        assert "hit 3 more" in (await bench.waited(until="more$", timeout=0)).content

    during(bench, act)


@sandboxed
@pytest.mark.long
def test_a_pattern_that_never_ends_stops_neither_the_agent_nor_the_wait(bench):
    async def act() -> None:
        await bench.shell("printf '%050d!\\n' 0 | tr 0 a; sleep 60", background=True)
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await anyio.sleep(0.05)
                beats += 1

        began = time.monotonic()
        async with anyio.create_task_group() as group:
            group.start_soon(beat)
            with pytest.raises(ToolError, match="takes too long"):
                await bench.waited(until="(a+)+$", timeout=1)
            group.cancel_scope.cancel()
        assert beats > 20
        assert time.monotonic() - began < 20

    during(bench, act)


@sandboxed
def test_a_wait_can_be_interrupted_while_a_pattern_runs(bench):
    async def act() -> None:
        await bench.shell("printf '%050d!\\n' 0 | tr 0 a; sleep 60", background=True)
        with anyio.fail_after(20), anyio.move_on_after(0.5) as scope:
            await bench.waited(until="(a+)+$", timeout=60)
        assert scope.cancelled_caught

    during(bench, act)


@sandboxed
@pytest.mark.long
def test_output_without_end_does_not_outlast_the_timeout(bench):
    began = time.monotonic()
    told, _ = found(bench, "yes", "READY", timeout=1)
    assert "in vain" in told
    assert time.monotonic() - began < 30


@sandboxed
@pytest.mark.parametrize(
    ("until", "why"), [("(", "cannot be read: missing"), ("a\nb", "single lines"), ("a{2,1}", "cannot be read")]
)
def test_what_is_no_pattern_is_refused(bench, until, why):
    with pytest.raises(ToolError, match=why):
        found(bench, "sleep 60", until)


@sandboxed
def test_what_ended_in_a_wait_is_not_told_again(bench):
    async def act() -> None:
        await bench.shell("sleep 0.6", background=True)
        await bench.waited(until="exit")
        assert bench.jobs.note("s1") == ""

    during(bench, act)
