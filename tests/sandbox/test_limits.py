"""Control groups: they hold while they are used, and nothing of them stays behind."""

import subprocess
import sys

import pytest

from lmagent.core.sandbox import Limits
from lmagent.sandbox.limits import CGROUP, make_group


def test_empty_groups_of_processes_that_were_killed_are_removed_by_the_next_one():
    group = make_group(Limits())
    if group is None:
        pytest.skip("needs control groups that we may write")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = group.folders[0].with_name(f"lmagent-{dead.pid}-0")
    left.mkdir()
    try:
        script = "from lmagent.sandbox.limits import *\nmake_group(Limits()).remove()"
        subprocess.run([sys.executable, "-c", script], check=True)
        assert not left.exists()
        assert all(folder.exists() for folder in group.folders), "its owner lives"
    finally:
        group.remove()
    assert not any(folder.exists() for folder in group.folders)
    assert str(group.folders[0]).startswith(str(CGROUP))
