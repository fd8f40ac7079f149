"""An engine that cannot be imported: one sentence that says why, and what to install."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

GOMP = "libgomp.so.1: cannot open shared object file: No such file or directory"


def without_library(folder):
    """The environment of a system that has the engine's package, and lacks a library that it links to."""
    package = folder / "xllamacpp"
    package.mkdir()
    (package / "__init__.py").write_text(f"raise ImportError({GOMP!r})\n")
    return {**os.environ, "PYTHONPATH": str(folder), "HOME": str(folder)}


@pytest.mark.parametrize("command", [("lmagent", "demo"), ("lmagent.modelserver.engine.devices",)])
def test_a_library_that_the_system_lacks_is_named_once_with_its_package(tmp_path, command):
    run = subprocess.run(
        [sys.executable, "-m", *command],
        env=without_library(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    said = run.stdout + run.stderr
    assert said.count(GOMP) == 1
    assert len(said.splitlines()) <= 3
    assert "sudo apt install libgomp1" in said
    assert "Traceback" not in said
