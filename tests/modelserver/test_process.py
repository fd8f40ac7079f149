"""A worker's process: it comes up or says why not, and nothing of it is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import anyio
import pytest
from msgspec.structs import replace
from worker_kit import alive, fake_entry, fake_program, group, spec_of, until

from lmagent.modelserver.pool import process as process_module
from lmagent.modelserver.pool.process import Processes, StartError


def processes(folder, program=fake_program):
    return Processes(folder / "logs", program)


def started(folder, name="m", **model):
    entry = fake_entry(folder, name, **model)
    return processes(folder).start(entry, spec_of(entry))


def test_a_worker_says_hello_and_is_gone_with_its_whole_group_when_stop_returns(tmp_path):
    async def main() -> None:
        worker = started(tmp_path)
        hello = await worker.ready()
        assert hello.pid == worker.pid
        assert worker.address.startswith("http://127.0.0.1:")
        assert len(worker.key) > 30
        assert worker.memory() > 1 << 20
        assert len(group(worker.pid)) == 2  # the worker, and what watches its input
        await worker.stop()
        assert not alive(worker.pid)
        until(lambda: group(worker.pid) == [])
        assert worker.memory() == 0

    anyio.run(main)


def test_a_server_that_demands_a_key_starts_no_engine_that_knows_none(tmp_path):
    entry = replace(fake_entry(tmp_path, "m"), engine="transformers")
    with pytest.raises(StartError, match="knows none: use a GGUF model"):
        Processes(tmp_path / "logs", fake_program, keyed=True).start(entry, spec_of(entry))


@pytest.mark.parametrize(
    ("model", "reason", "code"),
    [
        ({"fault": "dies"}, "SIGABRT", "load_failed"),
        ({"fault": "killed"}, "killed (SIGKILL)", "worker_killed"),
        ({"fault": "fails", "error": "the file is cursed"}, "the file is cursed", "load_failed"),
        ({"fault": "garbage"}, "something else than hello: b'Loading, please wait", "load_failed"),
        (
            {
                "fault": "dies",
                "error": "0.00.1.2 E ggml_aligned_malloc: insufficient memory (attempted to allocate 9 MB)",
            },
            "not enough memory: 9 MB more were needed at once",
            "out_of_memory",
        ),
    ],
)
def test_a_worker_that_does_not_come_up_says_why(tmp_path, model, reason, code):
    async def main() -> None:
        worker = started(tmp_path, **model)
        with pytest.raises(StartError) as failed:
            await worker.ready()
        await worker.stop()
        assert reason in str(failed.value)
        assert failed.value.cause.code == code
        assert not alive(worker.pid)

    anyio.run(main)


def test_a_program_that_is_not_there_is_an_error_with_the_reason(tmp_path):
    entry = fake_entry(tmp_path, "m")
    with pytest.raises(StartError, match="No such file"):
        processes(tmp_path, program=lambda entry: [str(tmp_path / "nothing")]).start(entry, spec_of(entry))


def test_loading_that_comes_to_no_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(process_module, "LOAD_LIMIT", 0.3)

    async def main() -> None:
        worker = started(tmp_path, fault="silent", error="begins")
        with pytest.raises(StartError) as failed:
            await worker.ready()
        await worker.stop()
        assert failed.value.cause.code == "load_stalled"
        assert "m.log" in str(failed.value)
        assert not alive(worker.pid)

    anyio.run(main)


def test_a_worker_that_ignores_the_end_of_its_input_and_sigterm_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(process_module, "CLOSE_GRACE", 0.2)
    monkeypatch.setattr(process_module, "TERM_GRACE", 0.2)

    async def main() -> None:
        worker = started(tmp_path, fault="deaf")
        await worker.ready()
        await worker.stop()
        assert not alive(worker.pid)

    anyio.run(main)


def test_the_end_of_a_worker_is_told_with_its_cause(tmp_path):
    async def main() -> None:
        worker = started(tmp_path)
        await worker.ready()
        os.kill(worker.pid, signal.SIGSEGV)
        cause = await worker.ended()
        assert "SIGSEGV" in cause.text
        await worker.stop()
        until(lambda: group(worker.pid) == [])

    anyio.run(main)


PARENT = """
    import sys, time
    from pathlib import Path
    import anyio
    sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
    from worker_kit import fake_entry, fake_program, spec_of
    from test_process import processes

    async def main():
        folder = Path(sys.argv[2])
        entry = fake_entry(folder, "m", load=float(sys.argv[3]))
        worker = processes(folder).start(entry, spec_of(entry))
        print(worker.pid, flush=True)
        await worker.ready()
        await anyio.sleep(60)

    anyio.run(main)
"""


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(6))
def test_no_worker_is_left_when_its_parent_is_killed_at_any_moment(tmp_path, seed):
    chance = random.Random(seed)
    load = chance.choice([0.0, 0.3])
    here = os.path.dirname(__file__)
    command = [sys.executable, "-c", textwrap.dedent(PARENT), here, str(tmp_path), str(load)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(chance.random() * 0.5)
        parent.kill()
    until(lambda: group(pid) == [])
