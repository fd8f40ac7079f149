"""A bubblewrap for the tests."""

from __future__ import annotations

import os
from pathlib import Path

from lmagent.sandbox.bubblewrap import Bubblewrap, BubblewrapOptions


def bubblewrap(workspace: Path, **more) -> Bubblewrap:
    return Bubblewrap(workspace, BubblewrapOptions(env=dict(os.environ), **more))
