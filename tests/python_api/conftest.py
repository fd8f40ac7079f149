"""A model server that follows a script, and an agent of a program in an empty folder."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lmagent import Agent
from lmagent.testing import ScriptedServer


class Serving:
    """Makes agents for one workspace; `server` is the model server of the newest."""

    server: ScriptedServer

    def __init__(self, workspace: Path, stack: ExitStack) -> None:
        self.workspace = workspace
        self._stack = stack

    def __call__(self, script: Any, **options: Any) -> Agent:
        self.server = self._stack.enter_context(ScriptedServer(script))
        return self.again(**options)

    def again(self, **options: Any) -> Agent:
        """Return another agent with the same model server, as another process would have it."""
        options.setdefault("settings", {"sandbox": "off"})
        return Agent(self.workspace, endpoint=self.server.base_url, model="scripted", **options)


@pytest.fixture
def agent_with(empty_workspace: Path) -> Generator[Serving]:
    with ExitStack() as stack:
        yield Serving(empty_workspace, stack)


@pytest.fixture
def last_result() -> Callable[[ScriptedServer], str]:
    """Return a function that gives the newest result of a tool as the model was shown it."""

    def find(server: ScriptedServer) -> str:
        results = [message for message in server.chats[-1].messages if message["role"] == "tool"]
        return str(results[-1]["content"])

    return find
