from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
from testkit.amount import mostly_long

ROOT = Path(__file__).resolve().parents[2]
LMAGENT = Path(sys.executable).with_name("lmagent")


def run(tmp_path: Path, *argv: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{LMAGENT.parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(tmp_path), "LLM_URL": "http://127.0.0.1:9", **env}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_the_example_cassette_plays_back_the_main_job(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    shutil.copytree(ROOT / "examples" / "demo" / "workspace", workspace)
    task = "Summarise all Python files in this workspace into SUMMARY.md"
    cassette = ROOT / "examples" / "demo" / "cassette.jsonl"
    flags = ("--permission", "auto", "--model", "demo-model", "--workspace", workspace, "--replay", cassette)
    ran = run(tmp_path, LMAGENT, task, *flags)
    assert ran.returncode == 0, ran.stderr
    assert "| `todo/store.py` |" in (workspace / "SUMMARY.md").read_text()


@pytest.mark.engine
def test_the_demo_does_real_chores_with_the_model_that_comes_along_and_says_what_it_is(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the demo was NOT tested: the package xllamacpp is missing")
    ran = run(tmp_path, ROOT / "scripts" / "demo.sh")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "The model is a toy" in ran.stdout
    assert "write shopping.txt" in ran.stderr
    assert "shell printf" in ran.stderr or "shopping.txt" in ran.stdout


@pytest.mark.engine
def test_the_demo_does_a_task_of_ones_own_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the demo was NOT tested: the package xllamacpp is missing")
    folder = tmp_path / "mine"
    folder.mkdir()
    ran = run(tmp_path, LMAGENT, "demo", "-w", folder, "Write apples to fruit.txt")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (folder / "fruit.txt").read_text().strip() == "apples"


def programs_without_a_sandbox(tmp_path: Path) -> str:
    """A PATH on which neither bubblewrap nor docker can be found."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("bash", "sh", "env", "ls", "cat", "find", "wc"):
        (folder / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    return str(folder)


@pytest.mark.engine
@pytest.mark.long
def test_without_a_sandbox_the_demo_says_what_it_leaves_out_and_does_the_rest(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the demo was NOT tested: the package xllamacpp is missing")
    ran = run(tmp_path, LMAGENT, "demo", PATH=programs_without_a_sandbox(tmp_path), COLUMNS="80")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Left out, as no sandbox works here: append a line, make a folder, run a command, count files" in ran.stdout
    assert "install it: sudo apt install bubblewrap" in ran.stdout
    assert 'The file has 1 line: "milk and bread"' in ran.stdout
    assert "shell" not in ran.stderr
    assert "lmagent doctor" in ran.stdout


@pytest.mark.engine
@pytest.mark.parametrize(
    "task", mostly_long(["Append eggs to a.txt", "Run the command wc -w a.txt", "How many files are in src?"])
)
def test_without_a_sandbox_a_command_fails_in_one_sentence_of_the_model(tmp_path: Path, task: str) -> None:
    pytest.importorskip("xllamacpp", reason="the demo was NOT tested: the package xllamacpp is missing")
    ran = run(tmp_path, LMAGENT, "demo", task, PATH=programs_without_a_sandbox(tmp_path))
    answer = ran.stdout.strip().splitlines()[-1]
    assert answer.startswith("That did not work: exit code 126")
    assert len(answer) < 80


@pytest.mark.engine
@pytest.mark.long
def test_the_demo_keeps_its_folder_if_it_is_to_and_says_how_to_look_at_it(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the demo was NOT tested: the package xllamacpp is missing")
    ran = run(tmp_path, LMAGENT, "demo", "--keep", "Write apples to fruit.txt", TMPDIR=str(tmp_path))
    folder = Path(ran.stdout.rpartition("ls ")[2].strip())
    assert folder.parent == tmp_path
    assert (folder / "fruit.txt").read_text().strip() == "apples"


@pytest.mark.engine
@pytest.mark.parametrize("sandbox", mostly_long([True, False]))
def test_the_demo_is_the_same_for_a_user_who_is_not_root(tmp_path: Path, sandbox: bool) -> None:
    pytest.importorskip("xllamacpp", reason="the demo was NOT tested: the package xllamacpp is missing")
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("the tests run as an ordinary user already, or setpriv is missing")
    home = Path(tempfile.mkdtemp(prefix="lmagent-nobody-", dir="/tmp"))  # tmp_path is closed to others
    try:
        home.chmod(0o777)
        path = os.environ["PATH"] if sandbox else programs_without_a_sandbox(home)
        variables = [f"HOME={home}", f"PATH={path}", f"PYTHONPATH={ROOT / 'src'}:{sysconfig.get_path('purelib')}"]
        for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
            nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/env", "-i", *variables)
            if subprocess.run([*nobody, python, "-c", "import xllamacpp, lmagent"], cwd=home, check=False).returncode:
                continue
            done = subprocess.run(
                [*nobody, python, "-m", "lmagent", "demo"], cwd=home, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            assert ("There is 1 file." in done.stdout) == (sandbox and not done.stdout.count("Left out"))
            assert ("recipes/, " in done.stdout) == ("There is 1 file." in done.stdout)
            assert "shopping.txt." in done.stdout
            return
        pytest.skip("no Python here can be run by another user")
    finally:
        shutil.rmtree(home)


def test_without_the_engine_the_demo_says_how_to_get_it(tmp_path: Path) -> None:
    block = tmp_path / "block"
    block.mkdir()
    (block / "sitecustomize.py").write_text("import sys; sys.modules['xllamacpp'] = None\n")
    ran = run(tmp_path, LMAGENT, "demo", PYTHONPATH=str(block))
    assert ran.returncode == 1
    assert "pip install" in ran.stderr
    assert "[local]" in ran.stderr
    assert "'lmagent[local]'" not in ran.stderr


@pytest.mark.engine
def test_the_demo_model_does_a_task_of_the_agent_when_it_is_asked_for_by_name(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the demo was NOT tested: the package xllamacpp is missing")
    folder = tmp_path / "mine"
    folder.mkdir()
    flags = ("-w", folder, "--permission", "auto", "Write apples to fruit.txt")
    ran = run(tmp_path, LMAGENT, *flags, LLM_URL="", LLM_MODEL="lmagent-demo", LLM_TEMPERATURE="0")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "lmagent-demo runs here, on the built-in engine" in ran.stderr
    assert (folder / "fruit.txt").read_text().strip() == "apples"
