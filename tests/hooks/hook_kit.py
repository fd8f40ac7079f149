"""Hooks in real turns: the real loop, a scripted model server, commands in the real sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio

from lmagent.app.host import Host
from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.config.paths import data_dir
from lmagent.config.trust import trust
from lmagent.core import events as ev
from lmagent.core.commands import Approve, Compact, Steer, Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session
from lmagent.testing import ScriptedServer
from lmagent.testing.script import Behaviour, say

SAVE = 'cat > "$CLAUDE_PROJECT_DIR/seen.json"'
"""A hook that keeps its input."""


def hook(event: str, command: str, matcher: str = "", **more: Any) -> dict[str, Any]:
    return {"hooks": {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": command, **more}]}]}}


def joined(*documents: dict[str, Any]) -> dict[str, Any]:
    events: dict[str, list[Any]] = {}
    for document in documents:
        for event, groups in document["hooks"].items():
            events.setdefault(event, []).extend(groups)
    return {"hooks": events}


class Ran:
    """A session after its turns."""

    def __init__(self, server: ScriptedServer, events: Sequence[ev.Event], said: Sequence[str]) -> None:
        self.events = list(events)
        self.said = "\n".join(said)
        self.chats = [[dict(message) for message in chat.messages] for chat in server.chats]
        self.prompt = [str(message["content"]) for message in self.chats[-1]] if self.chats else []

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def results(self) -> list[ev.ToolFinished]:
        return self.of(ev.ToolFinished)

    @property
    def end(self) -> ev.TurnFinished:
        return self.of(ev.TurnFinished)[-1]

    @property
    def notices(self) -> str:
        return "\n".join(notice.text for notice in self.of(ev.Notice) if notice.code == "hook")

    @property
    def text(self) -> str:
        return "\n".join(self.prompt)


class HookWorld:
    """A home with a user's hooks, and a workspace with its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.workspace = home / "a work space"
        self.workspace.mkdir()
        self.own = home / ".config" / "lmagent" / "hooks.json"
        self.claude = self.workspace / ".claude" / "settings.json"

    def users(self, *documents: dict[str, Any]) -> None:
        self._write(self.own, *documents)

    def workspaces(self, *documents: dict[str, Any], trusted: bool = True) -> None:
        self._write(self.claude, *documents)
        if trusted:
            trust(data_dir({"HOME": str(self.home)}), self.workspace)

    def _write(self, path: Path, *documents: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(joined(*documents), indent=2))

    def seen(self, name: str = "seen.json") -> dict[str, Any]:
        return json.loads((self.workspace / name).read_text())

    def run(
        self,
        *replies: Behaviour,
        texts: Sequence[str] = ("go",),
        answer: bool | None = None,
        compact: bool = False,
        steer: str = "",
        sessions: int = 1,
        before: Callable[[Host], None] = lambda host: None,
        **flags: Any,
    ) -> Ran:
        """Run a turn for each text, with `steer` during the first reply.

        `answer` is the user's to every question, None if no user is there.
        """
        events: list[ev.Event] = []
        said: list[str] = []

        async def turns(session: Session) -> None:
            async with anyio.create_task_group() as tasks:

                def listen(event: ev.Event) -> None:
                    events.append(event)
                    if isinstance(event, ev.ApprovalRequested) and answer is not None:
                        tasks.start_soon(session.send, Approve(approval=event.id, approved=answer))

                    if isinstance(event, ev.StepStarted) and steer and event.step == 1:
                        tasks.start_soon(session.send, Steer(message=user(steer)))

                session.listen(listen)
                for text in texts:
                    await session.send(Submit(message=user(text)))
                    await run_until_idle(session)
                if compact:
                    await session.send(Compact())
                    await run_until_idle(session)

        async def go(url: str) -> None:
            given = {"llm_url": url, "llm_model": "m", "permission_mode": "auto", **flags}
            host = await open_host(HostOptions(self.workspace, given, attended=answer is not None), say=said.append)
            before(host)
            try:
                for _ in range(sessions):
                    await turns(await host.new_session())
            finally:
                await host.aclose()

        with ScriptedServer([*replies, *[say("done.")] * 4]) as server:
            anyio.run(go, server.base_url)
            return Ran(server, events, said)
