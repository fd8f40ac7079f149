"""shell and jobs in a real sandbox."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import anyio
import pytest
from shell_kit import Bench, during, logged, play

from lmagent.core.errors import SandboxError, StoreError, ToolError
from lmagent.core.tool import ToolOutput
from lmagent.tools.shell.collect import SPILL_CAP, Collector, clean
from lmagent.tools.shell.installs import may_install

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap: it is not installed")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_output_and_exit_code_come_back_in_order(bench):
    (output,) = play(bench, "echo out; echo err >&2; echo more; exit 3")
    assert output.content == "out\nerr\nmore\n[exit code 3]"
    assert output.data["exit_code"] == 3


def test_folder_and_exported_variables_carry_over(bench):
    (bench.workspace / "sub dir").mkdir()
    outputs = play(
        bench,
        "cd 'sub dir'; export FOO=$'a b\\nc'; export BAR=1; NOT=exported",
        'pwd; printf "%s|%s|%s" "$FOO" "$BAR" "$NOT"; unset BAR',
        'echo "[$BAR]"; cd ..; pwd',
    )
    assert outputs[0].content == "[the next command begins in sub dir]"
    assert outputs[1].content == f"{bench.workspace}/sub dir\na b\nc|1|"
    assert outputs[2].content == f"[]\n{bench.workspace}\n[the next command begins in .]"


def test_the_state_is_kept_when_a_command_fails_or_exits(bench):
    outputs = play(
        bench, "export A=1; cd /tmp; exit 9", "echo $A; pwd", "set -e; export B=2; false; echo no", "echo $B"
    )
    assert outputs[1].content == f"1\n{bench.workspace}"
    assert "no" not in outputs[2].content
    assert outputs[3].content == "2"


def test_the_folder_is_found_again_in_the_log_and_the_variables_are_gone_and_it_says_so(tmp_path):
    (tmp_path / "sub").mkdir()
    first = Bench(tmp_path)
    (output,) = play(first, "cd sub; export A=kept")
    stored = logged(output)
    again, once = play(Bench(tmp_path, (stored,)), "echo [$A]; pwd", "true")
    assert again.content.startswith(f"[]\n{tmp_path}/sub\n[lmagent was started anew: the variables")
    assert once.content == ""


def test_a_folder_that_is_gone_is_left(bench):
    (bench.workspace / "sub").mkdir()
    outputs = play(bench, "cd sub", "rm -r ../sub", "pwd")
    assert outputs[2].content.startswith(f"{bench.workspace}\n[the folder sub is not there any more")


def test_background_processes_of_a_command_die_with_it_and_it_says_so(bench):
    (output,) = play(bench, "sleep 60 & echo begun")
    assert output.content.startswith("begun\n[1 background process")


def test_a_timeout_says_so_and_keeps_the_output(bench):
    async def main() -> ToolOutput:
        output = await bench.shell("echo begun; sleep 60", timeout=1)
        await bench.aclose()
        return output

    output = anyio.run(main)
    assert output.content == "begun\n[timed out after 1 s; everything it started was killed]"


@pytest.mark.parametrize(("command", "word"), [("a\0b", "NUL"), ("  ", "empty"), ("x" * 2_000_000, "at most")])
def test_what_is_no_command_is_refused(bench, command, word):
    with pytest.raises(ToolError, match=word):
        play(bench, command)


def test_a_command_of_a_megabyte_runs(bench):
    (output,) = play(bench, "x='" + "y" * 1_000_000 + "'; echo ${#x}")
    assert output.content == "1000000"


def test_quotes_newlines_and_bytes_that_are_no_utf8_arrive_as_they_are(bench):
    outputs = play(bench, "printf '%s\\n' 'a  b' \"c'd\" \\\n 'e\nf'", "printf '\\xff\\xfeok'")
    assert outputs[0].content == "a  b\nc'd\ne\nf"
    assert outputs[1].content.endswith("ok")


def test_escapes_and_progress_bars_do_not_reach_the_model(bench):
    (output,) = play(bench, "printf '10%%\\r50%%\\r100%%\\n\\033[31mred\\033[0m\\n'")
    assert output.content == "100%\nred"


def test_400_megabytes_are_excerpted_and_kept_up_to_the_cap(bench):
    (output,) = play(bench, "echo FIRST; yes 0123456789abcdef | head -c 400M; echo LAST")
    assert output.content.startswith("FIRST")
    assert output.content.endswith("LAST")
    assert len(output.content) <= 50_000
    assert output.fit is not None
    short = output.fit(2000)
    assert len(short.content) <= 2000
    lines = int(re.search(r"\n\[… .*lines (?:\d+)-(?:\d+) of (\d+) left out …\]\n", short.content)[1])
    assert lines == 2 + (400 << 20) // 17
    assert short.file == output.file
    assert output.file is not None
    assert output.file.stat().st_size == SPILL_CAP
    assert output.data["bytes"] > 400_000_000


def test_live_output_is_shown_while_the_command_runs(bench):
    play(bench, "echo one; sleep 0.3; echo two")
    assert "one" in bench.shown[0]
    assert "".join(bench.shown) == "one\ntwo\n"


def test_without_a_sandbox_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="no sandbox"):
        play(Bench(tmp_path), "touch ran")
    assert not (tmp_path / "ran").exists()


def test_a_disk_that_is_full_ends_the_command(tmp_path):
    collector = Collector(tmp_path / "no" / "\0", lambda _: None)
    with pytest.raises((StoreError, ValueError)):
        collector.feed(b"x" * (2 << 20))


def test_jobs_are_started_listed_watched_and_killed(bench):
    async def main() -> None:
        try:
            started = await bench.shell("echo ready; sleep 60", background=True)
            assert started.content.startswith("job1: running")
            assert "a line matches: ready" in await bench.job("wait", id="job1", until="rea.y")
            assert "job1: running" in await bench.job("list")
            assert "ready" in await bench.job("tail", id="1")
            assert "killed" in await bench.job("kill", id="job1")
            failed = await bench.shell("echo oops; exit 4", background=True)
            assert "exit code 4" in failed.content
            assert "oops" in failed.content
        finally:
            await bench.aclose()

    anyio.run(main)


def test_waiting_for_a_job_ends_with_it_or_in_vain(bench):
    async def main() -> None:
        try:
            await bench.shell("sleep 0.6; echo over", background=True)
            assert "it has ended" in await bench.job("wait", id="job1")
            await bench.shell("sleep 60", background=True)
            assert "in vain" in await bench.job("wait", id="job2", timeout=0)
            with pytest.raises(ToolError, match="cannot be read"):
                await bench.job("wait", id="job2", until="(")
            with pytest.raises(ToolError, match="job1, job2"):
                await bench.job("tail", id="job9")
        finally:
            await bench.aclose()

    anyio.run(main)


def test_the_model_is_told_once_that_a_job_has_ended(bench):
    async def main() -> None:
        try:
            await bench.shell("sleep 0.5", background=True)
            with anyio.fail_after(20):
                await bench.jobs.ended("s1")
            assert bench.jobs.note("s1").startswith("<jobs>job1 ended: exit code 0 after")
            assert bench.jobs.note("s1") == ""
        finally:
            await bench.aclose()

    anyio.run(main)


def test_jobs_die_with_the_session(bench):
    async def main() -> None:
        await bench.shell("while :; do date > beat; sleep 0.05; done", background=True)
        await bench.aclose()
        (bench.workspace / "beat").unlink(missing_ok=True)
        await anyio.sleep(0.4)

    anyio.run(main)
    assert not (bench.workspace / "beat").exists()


def test_overdrawn_lines_are_reduced_to_their_last_state():
    assert clean(b"a\rb\rc\nd\r\ne") == "c\nd\ne"


def test_a_long_output_removes_those_that_dead_processes_left_and_no_other(tmp_path):
    for name in ("output-dead", "output-young", "kept"):
        (tmp_path / name).touch()
    working = Collector(tmp_path, lambda _: None)
    working.feed(b"x" * (2 << 20))
    for path in tmp_path.iterdir():
        if path.name != "output-young":
            os.utime(path, (0, 0))
    other = Collector(tmp_path, lambda _: None)
    other.feed(b"y" * (2 << 20))
    names = {working.file.name, other.file.name, "output-young", "kept"}
    assert {path.name for path in tmp_path.iterdir()} == names
    working.discard()
    other.discard()


def test_nothing_is_left_in_the_spill_folder_by_a_command_that_was_interrupted(bench):
    async def main() -> None:
        try:
            with anyio.move_on_after(1.0):
                await bench.shell("yes | head -c 40M; sleep 60")
        finally:
            await bench.aclose()

    anyio.run(main)
    assert not bench.spill.exists() or os.listdir(bench.spill) == []


def test_shell_and_python_of_a_session_see_the_same_tmp_and_home(tmp_path, monkeypatch):
    from msgspec.structs import replace

    from lmagent.config.settings import Settings
    from lmagent.tools.python import Python, python_tool
    from lmagent.tools.python.kernel import Kernels

    (workspace := tmp_path / "ws").mkdir()
    bench = Bench(workspace)
    bench.confined._settings = replace(Settings(), agent_data_dir=tmp_path / "data")
    kernels = Kernels(bench.spill)
    python = python_tool(bench.confined.get, kernels)

    async def act() -> list[str]:
        await bench.shell("echo shell >/tmp/x; echo home >~/y")
        code = "import os; print(open('/tmp/x').read(), open(os.path.expanduser('~/y')).read())\n"
        code += "open('/tmp/z', 'w').write('py')"
        told = (await python.run(Python(code), bench.context())).content
        later = (await bench.shell("cat /tmp/z")).content
        await kernels.aclose()
        return [told, later]

    told, later = during(bench, act)
    assert told.split()[:2] == ["shell", "home"]
    assert later == "py"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        *(("pip install x", True), ("python3 -m pip install x", True), ("cd a && .venv/bin/pip3.11 install x", True)),
        *(("npm i x", True), ("npx x", True), ("pnpx x", True), ("yarn", True), ("(uv sync)", True)),
        *(("sudo apt-get update", True), ("npm run test && npm ci", True), ("uvx ruff", True)),
        *(("npm test", False), ("npm run build", False), ("cat pip.conf", False), ("ls pip-tools", False)),
        *(("python app.py", False), ("grep adapt x", False), ("ls my.npm", False)),
    ],
)
def test_a_command_that_names_an_installer_may_need_registries(command, expected):
    assert may_install(command) is expected
