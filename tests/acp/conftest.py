"""A program for editors in a home folder of its own, and the published schema."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from acp_kit import Program, Schema

from lmagent.testing import ScriptedServer


@pytest.fixture
def served(tmp_path: Path) -> Generator[Callable[[Any], Program]]:
    """Return a function that starts a model server with a script, and the program for it."""
    with ExitStack() as stack:

        def start(script: Any) -> Program:
            server = stack.enter_context(ScriptedServer(script))
            return Program(tmp_path, server.base_url)

        yield start


@pytest.fixture(scope="session")
def schema() -> Schema:
    return Schema()
