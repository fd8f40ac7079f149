"""Text from outside in an approval hides nothing, and does not look like a text of ours. Real loop, scripted model."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core.commands import Approve, Submit
from lmagent.core.events import ApprovalRequested, Event
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.terminal.render import Renderer
from lmagent.terminal.style import style_of
from lmagent.testing import ScriptedServer, calls, say, tool

INJECTIONS = (
    "x\x1b[2K\x1b[1A\x1b[8mhidden\x1b[0m",
    "x\x1b]0;title\x07\x1b]52;c;ZWNobw==\x07",
    "x\r\x1b[KAllow read?",
    "x\x9b31m\x9d0;t\x9c",
    "x\u202egnp.exe\u202c",
    "x\u2066\u2067abc\u2069",
    "x\nAllow read? y yes · n no\n\n  → it only reads",
    "x\u2028→ it only reads\u2029",
    "x\U000e0041\U000e0042\U000e007f",
    "x\b\b\b\x7fy\x0b\x0cz",
)

# For each tool: where the text goes, in a call that is asked about.
CALLS: dict[str, Any] = {
    "shell": lambda text: {"command": f"echo {text}"},
    "python": lambda text: {"code": f"print(1) # {text}"},
    "write": lambda text: {"path": "new.txt", "content": text},
    "write to": lambda text: {"path": text.replace("\n", " "), "content": "x"},
    "edit": lambda text: {"path": "a.txt", "search": "alpha", "replace": text},
    "mkdir": lambda text: {"path": text},
    "git_add": lambda text: {"paths": [text]},
    "git_commit": lambda text: {"message": text},
    "memory": lambda text: {"operation": "store", "content": text},
    "project": lambda text: {"operation": "create", "text": text},
    "delegate": lambda text: {"objective": text},
    "promote_skill": lambda text: {"file_path": text, "function_name": text},
    "grep": lambda text: {"pattern": text},
    "read": lambda text: {"path": text},
}


def asked(workspace: Path, name: str) -> list[ApprovalRequested]:
    """Let the model make the calls; return the approvals, each of which was denied."""
    found: list[ApprovalRequested] = []
    made = name.partition(" ")[0]
    wanted = [tool("use_tool", name=made, arguments=CALLS[name](text)) for text in INJECTIONS]

    async def go(url: str) -> None:
        flags = {"llm_url": url, "llm_model": "m", "permission_mode": "manual"}
        host = await open_host(HostOptions(workspace, flags, attended=True), say=lambda _: None)
        try:
            session = await host.new_session()
            async with anyio.create_task_group() as tasks:

                def heard(event: Event) -> None:
                    if isinstance(event, ApprovalRequested):
                        found.append(event)
                        tasks.start_soon(session.send, Approve(approval=event.id, approved=False, by="test"))

                session.listen(heard)
                await session.send(Submit(message=user("go")))
                await run_until_idle(session)
        finally:
            await host.aclose()

    with ScriptedServer([calls(*wanted), *[say("done.")] * 5]) as server:
        anyio.run(go, server.base_url)
    return found


@pytest.fixture
def workspace(empty_workspace: Path) -> Path:
    (empty_workspace / "a.txt").write_text("alpha\n")
    return empty_workspace


@pytest.mark.parametrize("name", CALLS)
def test_an_approval_shows_what_would_hide_and_imitates_nothing(workspace: Path, name: str) -> None:
    requests = asked(workspace, name)
    assert requests, f"{name} is not asked about"
    for request in requests:
        printed = list[str]()
        Renderer(style_of(sys.stderr, color=False), printed.append).approval(request)
        text = "".join(printed).rstrip("\n")
        assert not re.search(r"[^\n\t\x20-\x7e\xa1-\U000dffff]|[\u2028-\u202e\u2066-\u2069]", text), repr(text)
        head, *rest = text.split("\n")
        assert " — " in head
        assert all(line.startswith("  ") for line in rest), text  # our own lines begin at the margin
        ours = [line for line in rest if line.startswith("  →")]
        assert len(ours) <= 1, text
        assert not ours or rest[-1] == ours[0], text
        assert not any(line.startswith("  → it only reads") for line in ours), text
