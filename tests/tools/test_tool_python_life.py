"""How Python lives and dies under the python tool, on a real sandbox."""

import ast
import os
from pathlib import Path

import anyio
import pytest
from python_kit import Cells, is_gone_soon, processes_with

from lmagent.core.errors import SandboxError, ToolError
from lmagent.core.sandbox import Limits
from lmagent.core.tool import ToolContext
from lmagent.sandbox.bubblewrap import Bubblewrap
from lmagent.sandbox.environment import SandboxRequest
from lmagent.testing.fakes import FakeClock, FakeSandbox
from lmagent.tools.python import Python, kernel_main, python_tool
from lmagent.tools.python.kernel import Kernels


@pytest.fixture
def cells(workspace: Path) -> Cells:
    return Cells(workspace)


# --- the end of code and of Python ---------------------------------------------------------------------------------


def test_an_endless_loop_is_interrupted_and_variables_are_kept(cells: Cells) -> None:
    late, after = cells({"code": "x = 1\nwhile True: pass", "timeout": 2}, "x")
    assert "KeyboardInterrupt" in late
    assert late.endswith("[timed out after 2 s: interrupted; the variables are kept]")
    assert after == "=> 1"


def test_what_does_not_stop_at_an_interrupt_is_killed(workspace: Path) -> None:
    cells = Cells(workspace, grace=0.5)
    stubborn = "import time\nprint('on')\nwhile True:\n    try: time.sleep(600)\n    except BaseException: pass"
    in_c = "sum(iter(int, 1))"
    first, second, after = cells({"code": stubborn, "timeout": 2}, {"code": in_c, "timeout": 2}, "1")
    assert first == (
        "on\n[timed out after 2 s: the interrupt did not stop it, so Python was killed; all variables are gone]"
    )
    assert second.startswith("[a new Python: the earlier variables are gone]")
    assert after == "[a new Python: the earlier variables are gone]\n=> 1"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "import os; print('last', flush=True); os._exit(3)",
            "[Python ended with exit code 3; all variables are gone]",
        ),
        ("import ctypes; ctypes.string_at(0)", "[Python died of SIGSEGV; all variables are gone]"),
        ("import os; os.kill(os.getpid(), 9)", "[Python died of SIGKILL; all variables are gone]"),
        ("import os; os.closerange(0, 5000)", "[Python ended: the code closed its channel; all variables are gone]"),
    ],
)
def test_python_that_died_is_told_and_started_anew(cells: Cells, code: str, told: str) -> None:
    _, died, fresh, after = cells("x = 1", code, "'x' in dir()", "1")
    assert died.endswith(told)
    assert "<lmagent>" not in died
    assert fresh == "[a new Python: the earlier variables are gone]\n=> False"
    assert after == "=> 1"


def test_code_that_forges_an_answer_ends_python(cells: Cells) -> None:
    code = (
        "import os, sys, time\nframe = sys._getframe()\nwhile 'request' not in frame.f_locals: frame = frame.f_back\n"
        "os.write(1, (frame.f_locals['request']['mark'] * 2 + 'no\\n').encode()); time.sleep(60)"
    )
    forged, after = cells(code, "1")
    assert forged == "[Python was killed; all variables are gone]"
    assert after.endswith("=> 1")


def test_python_that_dies_between_two_calls_is_started_anew(cells: Cells) -> None:
    code = "import os, threading\nthreading.Timer(0.1, os._exit, [1]).start()"

    async def main() -> None:
        await cells.call(code)
        with anyio.fail_after(30):
            await cells.kernels._kernels["s"].ended.wait()
        assert (await cells.call("1")).content == "[a new Python: the earlier variables are gone]\n=> 1"
        await cells.kernels.aclose()

    anyio.run(main)


def test_closing_the_usual_descriptors_is_survived(cells: Cells) -> None:
    closed, after = cells("x = 1\nimport os, sys\nos.closerange(0, 500)\nsys.stdout.close()", "print('here'); x")
    assert "Python" not in closed
    assert after == "here\n=> 1"


def test_redirected_descriptors_and_streams_are_put_right(cells: Cells) -> None:
    code = (
        "import io, os, sys, signal\nos.dup2(os.open('log', os.O_CREAT | os.O_WRONLY), 1)\nsys.stdout = io.StringIO()\n"
    )
    code += "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    redirected, after, late = cells(code, "print('here')", {"code": "while True: pass", "timeout": 2})
    assert (redirected[:3], after) == ("=> ", "here")
    assert "interrupted" in late


def test_python_that_runs_out_of_memory_is_told_so(workspace: Path) -> None:
    cells = Cells(workspace, limits=Limits(memory_mb=256))
    shared = (
        "m = mmap.mmap(-1, 1 << 30)\nfor i in range(0, 1 << 30, 4096): m[i] = 1\n"  # no limit of the process holds it
    )
    # Without a control group shared memory is not counted: then private memory of several.
    private = (
        "for _ in range(6):\n    if not os.fork():\n        b = bytearray(90 << 20); b[::4096] = b'1' * 23040\n"
        "        time.sleep(60)\ntime.sleep(60)"
    )
    died, fresh = cells(f"import mmap, os, time\n{shared}{private}", "1")
    assert died == "[Python was killed: it used more memory than the sandbox allows; all variables are gone]"
    assert fresh == "[a new Python: the earlier variables are gone]\n=> 1"


def test_too_much_memory_at_once_is_an_error_like_others(workspace: Path) -> None:
    error, after = Cells(workspace, limits=Limits(memory_mb=256))("x = 1\nb = bytearray(1 << 30)", "x")
    assert error.endswith("MemoryError")
    assert after == "=> 1"


def test_a_fork_bomb_is_survived(workspace: Path) -> None:
    cells = Cells(workspace, limits=Limits(pids=32))
    bomb, after = cells({"code": "import os\nwhile True: os.fork()", "timeout": 5}, "6 * 7")
    assert "BlockingIOError" in bomb or "killed" in bomb
    assert after.endswith("=> 42")


def test_a_child_that_the_code_forked_does_not_answer(cells: Cells) -> None:
    codes = ["import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n'parent' if pid else 1/0", "pid > 0"]
    forked, after = cells(*codes)
    assert forked.endswith("=> 'parent'")
    assert "ZeroDivisionError" in forked
    assert after == "=> True"


def test_functions_of_the_session_can_be_sent_to_other_processes(cells: Cells) -> None:
    code = "import multiprocessing\ndef square(x): return x * x\n"
    code += "with multiprocessing.get_context('fork').Pool(2) as pool: squares = pool.map(square, [1, 2, 3])\nsquares"
    assert cells(code) == ["=> [1, 4, 9]"]


def test_threads_may_go_on_and_what_they_print_comes_with_the_next_call(cells: Cells) -> None:
    code = (
        "import threading\ngo, went = threading.Event(), threading.Event()\ndef work():\n    go.wait(); print('late')\n"
    )
    started, waited, after = cells(code + "t = threading.Thread(target=work); t.start()", "go.set(); t.join()", "1")
    assert (started, waited, after) == ("", "late", "=> 1")


def test_an_interrupted_call_leaves_no_process_and_no_thread(cells: Cells, workspace: Path) -> None:
    child = "import subprocess, time\np = subprocess.Popen(['sleep', '987651'])\ntime.sleep(600)"
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=[600]).start()\ntime.sleep(600)"
    first, code, second = cells({"code": child, "timeout": 2}, "p.wait(10)", {"code": thread, "timeout": 2})
    assert "the variables are kept" in first
    assert code == "=> -9"
    assert "its threads did not stop, so Python was killed" in second


def test_a_child_of_an_earlier_call_outlives_an_interrupt(cells: Cells) -> None:
    start = "import subprocess, time\np = subprocess.Popen(['sleep', '600'])"
    _, _, alive = cells(start, {"code": "time.sleep(600)", "timeout": 2}, "p.poll() is None")
    assert alive == "=> True"


# --- the life of a kernel ------------------------------------------------------------------------------------------


def test_reset_forgets_the_variables(cells: Cells) -> None:
    assert cells("x = 1", {"code": "'x' in dir()", "reset": True}, {"code": "", "reset": True}) == ["", "=> False", ""]


def test_sessions_have_their_own_variables(cells: Cells) -> None:
    other = {"code": "'x' in dir()", "session": "other"}
    assert cells("x = 1", other, "x") == ["", "=> False", "=> 1"]


def test_closing_a_session_ends_its_python_and_no_other(cells: Cells) -> None:
    async def main() -> None:
        await cells.call("import subprocess; subprocess.Popen(['sleep', '987652']); None")
        await cells.call("x = 5", session="other")
        assert processes_with("987652")
        await cells.kernels.close("s")
        assert not processes_with("987652")
        assert (await cells.call("x", session="other")).content == "=> 5"
        await cells.kernels.aclose()
        assert (await cells.call("'x' in dir()", session="other")).content == "=> False"
        await cells.kernels.aclose()

    anyio.run(main)


def test_the_end_of_the_loop_leaves_no_python(cells: Cells) -> None:
    async def main() -> None:
        await cells.call("import subprocess; subprocess.Popen(['sleep', '987653']); None")

    anyio.run(main)
    assert is_gone_soon("987653")


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_cancelled_call_leaves_none_of_its_processes(workspace: Path, stubborn: bool) -> None:
    cells = Cells(workspace, grace=0.5 if stubborn else 30.0)
    code = "import subprocess, time\nsubprocess.Popen(['sleep', '987654'])\nwhile True:\n    try:\n"
    code += f"        print('on'); time.sleep(600)\n    except KeyboardInterrupt: {'pass' if stubborn else 'break'}"

    async def main() -> None:
        await cells.call("x = 1")
        began = anyio.Event()
        cells.emit = lambda _: began.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cells.call, code)
            await began.wait()
            tasks.cancel_scope.cancel()
        assert is_gone_soon("987654")
        after = (await cells.call("'x' in dir()")).content
        assert after == ("[a new Python: the earlier variables are gone]\n=> False" if stubborn else "=> True")
        await cells.kernels.aclose()

    anyio.run(main)


def test_a_sandbox_that_was_replaced_gets_a_new_python(cells: Cells, workspace: Path) -> None:
    async def main() -> None:
        await cells.call("x = 1")
        cells.sandbox = Bubblewrap(workspace, SandboxRequest(env=dict(os.environ)))
        assert (await cells.call("1")).content == "[a new Python: the earlier variables are gone]\n=> 1"
        await cells.kernels.aclose()

    anyio.run(main)


def test_without_a_sandbox_nothing_is_run_even_if_python_runs(cells: Cells) -> None:
    async def none() -> Bubblewrap:
        raise SandboxError("no sandbox")

    async def main() -> None:
        await cells.call("x = 1")
        cells.tool = python_tool(none, cells.kernels)
        with pytest.raises(SandboxError, match="no sandbox"):
            await cells.call("x")
        await cells.kernels.aclose()

    anyio.run(main)


def test_a_missing_python_is_told(workspace: Path) -> None:
    async def main() -> None:
        sandbox = FakeSandbox({}, FakeClock(), workspace)

        async def get() -> FakeSandbox:
            return sandbox

        kernels = Kernels(workspace / "spill")
        tool = python_tool(get, kernels)
        for _ in range(2):
            with pytest.raises(ToolError, match="no python3 where commands run"):
                await tool.run(Python("1"), ToolContext("s", "c", workspace, {}, lambda _: None))
        await kernels.aclose()

    anyio.run(main)


def test_the_kernel_is_written_for_old_pythons() -> None:
    source = Path(kernel_main.__file__).read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 8))
    assert len(source.encode()) < 100_000  # it is one argument of a command


def test_the_call_is_shown_by_its_first_words(cells: Cells) -> None:
    assert cells.tool.summary is not None
    assert cells.tool.summary(Python("import os\nos.getcwd()")) == "python import os os.getcwd()"
