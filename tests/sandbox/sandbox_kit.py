"""A bubblewrap for the tests."""

from __future__ import annotations

import os
from pathlib import Path

from lmagent.sandbox.bubblewrap import Bubblewrap
from lmagent.sandbox.environment import SandboxRequest


def bubblewrap(workspace: Path, **more) -> Bubblewrap:
    return Bubblewrap(workspace, SandboxRequest(env=dict(os.environ), **more))
