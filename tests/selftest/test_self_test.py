"""`lmagent doctor --self-test`: this installation, checked offline; and each fault that is planted is found."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

PLANTED = """
import fcntl, importlib.abc, sys, time
fcntl.flock = lambda *_: None
time.time = lambda: 86400.0
class Gone(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if name == "xllamacpp":
            raise ImportError("planted")
sys.meta_path.insert(0, Gone())
"""
FULL = """
import collections, shutil
shutil.disk_usage = lambda _: collections.namedtuple("Usage", "total used free")(9, 8, 1_000_000)
"""


def findings(home: Path, **env: str) -> tuple[int, dict[str, dict]]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **env}
    command = [sys.executable, "-m", "lmagent", "doctor", "--self-test", "--json"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, cwd=home)
    assert "Traceback" not in ran.stderr, ran.stderr
    return ran.returncode, {finding["name"]: finding for finding in json.loads(ran.stdout)}


def test_an_installation_that_is_whole_passes_every_check(tmp_path: Path):
    (tmp_path / ".lmagent").write_text("not a folder: the self-test does not touch the user's files")
    code, found = findings(tmp_path, LLM_URL="not a URL", PERMISSION_MODE="nonsense")
    assert len(found) >= 14
    assert {name: finding["text"] for name, finding in found.items() if finding["state"] == "fault"} == {}
    assert code == 0


def test_on_a_full_disk_the_disk_is_the_fault_and_no_other_part(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(FULL)
    code, found = findings(tmp_path, PYTHONPATH=str(tmp_path))
    assert (code, [*found]) == (1, ["disk"])
    assert "only 1 MB are free" in found["disk"]["text"]
    assert "set TMPDIR" in found["disk"]["fix"]


def test_without_a_place_for_temporary_files_that_is_the_fault(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(
        "import tempfile\ntempfile._candidate_tempdir_list = lambda: ['/dev/null']\n"
    )
    code, found = findings(tmp_path, PYTHONPATH=str(tmp_path))
    assert (code, [*found]) == (1, ["disk"])
    assert "no place for temporary files: No usable temporary directory" in found["disk"]["text"]


def test_planted_faults_are_found_each_with_its_fix(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    for name in ("sh", "python3", "git"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "/nowhere")
    (tmp_path / "sitecustomize.py").write_text(PLANTED)
    code, found = findings(tmp_path, PYTHONPATH=str(tmp_path), PATH=str(tmp_path / "bin"))
    states = {name: finding["state"] for name, finding in found.items() if finding["state"] != "ok"}
    assert states.items() >= {"clock": "fault", "locks": "fault", "sandbox": "fault", "engine": "warning"}.items()
    assert "two processes can hold one lock" in found["locks"]["text"]
    assert all(finding["fix"] for finding in found.values() if finding["state"] != "ok")
    assert code == 1
