"""A data folder that cannot be used is one plain sentence, with every command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from program import Program

COMMANDS = (("server", "start"), ("server", "status"), ("models",), ("sessions",), ("config",), ("hello",))


@pytest.mark.parametrize(("command", "below"), [*((command, "") for command in COMMANDS), (("sessions",), "/deep/er")])
def test_a_data_folder_that_is_a_file_is_said_with_the_way_out(program: Program, command, below: str) -> None:
    file = program.home / "afile"
    file.write_text("mine")
    run = program.run(*command, env={"AGENT_DATA_DIR": f"{file}{below}"})
    assert run.returncode == 1
    assert (
        f"lmagent: the data folder {file}{below} (AGENT_DATA_DIR in the environment) cannot be used: {file} is no"
        in run.stderr
    )
    assert "→ name a folder that you can write to: AGENT_DATA_DIR=FOLDER" in run.stderr
    assert "unexpected" not in run.stderr
    assert file.read_text() == "mine"


def test_doctor_says_what_is_wrong_with_the_data_folder(program: Program) -> None:
    file = program.home / "afile"
    file.write_text("mine")
    run = program.run("doctor", env={"AGENT_DATA_DIR": str(file)})
    assert "cannot be used" in run.stdout
    assert run.returncode == 1


def test_the_usual_data_folder_that_is_a_file_names_the_setting(program: Program) -> None:
    (program.home / ".local/share").mkdir(parents=True)
    (program.home / ".local/share/lmagent").write_text("mine")
    run = program.run("server", "status")
    assert "→ name a folder that you can write to: AGENT_DATA_DIR=FOLDER" in run.stderr


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="becomes another user by setpriv")
@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_data_folder_of_somebody_else_is_said_to_be_not_writable(mode: int) -> None:
    base = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    try:
        base.chmod(0o777)
        (base / "data").mkdir()
        (base / "data").chmod(mode)
        nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        env = {"HOME": str(base), "AGENT_DATA_DIR": str(base / "data"), "PATH": os.environ["PATH"]}
        code = "import sys; sys.argv = ['lmagent', 'server', 'status']; from lmagent.cli.main import main; main()"
        run = subprocess.run(
            [*nobody, sys.executable, "-c", code],
            env=env,
            cwd=base,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        shutil.rmtree(base)
    if "No module named" in run.stderr or "Permission denied" in run.stderr:
        pytest.skip(f"another user cannot read this checkout: {run.stderr.strip()[-200:]}")
    assert "is no folder that you can write to" in run.stderr
