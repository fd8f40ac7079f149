from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from lmagent.core.errors import ToolError
from lmagent.core.tool import FileMark, KeptText, Tool, ToolContext, ToolOutput
from lmagent.policy.gate import Request, Rules, sight
from lmagent.policy.paths import located, through_links


class FixedClock:
    def now(self) -> float:
        return 1_772_355_600.0  # 2026-03-01T09:00:00Z, a Sunday

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class Hands:
    """Calls tools as the engine does, and remembers what was seen as the engine does."""

    def __init__(self, workspace: Path) -> None:
        from lmagent.tools.registry import builtin_tools

        self.workspace = workspace
        self.seen: dict[str, FileMark] = {}
        self.kept: dict[str, KeptText] = {}
        self.rules = Rules()
        self.room = 50_000
        self.tools: dict[str, Tool] = {tool.name: tool for tool in builtin_tools(FixedClock())}

    @property
    def context(self) -> ToolContext:
        return ToolContext("s", "c", self.workspace, self.seen, lambda _: None, kept=self.kept.get)

    def arguments(self, name: str, **arguments: Any) -> Any:
        return msgspec.convert(arguments, self.tools[name].arguments)

    def __call__(self, name: str, **arguments: Any) -> ToolOutput:
        context = self._context_of(name, **arguments)
        try:
            output: ToolOutput = anyio.run(self.tools[name].run, self.arguments(name, **arguments), context)
        except ToolError as refusal:
            if refusal.kept is not None:
                self.kept[str(refusal.data["path"])] = KeptText(refusal.kept, str(refusal.data["file"]))
            raise
        if "sha256" in output.data:
            self.seen[output.data["path"]] = FileMark(output.data["sha256"], output.data.get("changed", False))
        if output.fit is not None and len(output.content.encode()) > self.room:
            output = output.fit(self.room)
        assert len(output.content.encode()) <= self.room
        return output

    def request(self, name: str, **arguments: Any) -> Request:
        """What the gate is asked about a call."""
        return Request(name, self.tools[name].effect, located(str(self.workspace), self.targets(name, **arguments)))

    def _context_of(self, name: str, **arguments: Any) -> ToolContext:
        if self.rules == Rules():
            return self.context
        hides = sight(self.request(name, **arguments), self.rules)
        hidden = through_links(str(self.workspace), hides) if hides else self.context.hidden
        return msgspec.structs.replace(self.context, hidden=hidden)

    def mark(self, path: str) -> None:
        """Count a file as read, as it is now."""
        content = (self.workspace / path).read_bytes()
        self.seen[path] = FileMark(hashlib.sha256(content).hexdigest(), False)

    def refused(self, name: str, **arguments: Any) -> ToolError:
        with pytest.raises(ToolError) as caught:
            self(name, **arguments)
        return caught.value

    def preview(self, name: str, **arguments: Any) -> str:
        preview = self.tools[name].preview
        assert preview is not None
        return preview(self.arguments(name, **arguments), self.context)

    def refused_unasked(self, name: str, **arguments: Any) -> ToolError:
        """What a call is refused with before a person is asked about it."""
        with pytest.raises(ToolError) as caught:
            self.preview(name, **arguments)
        return caught.value

    def summary(self, name: str, **arguments: Any) -> str:
        summary = self.tools[name].summary
        assert summary is not None
        return summary(self.arguments(name, **arguments))

    def targets(self, name: str, **arguments: Any) -> tuple[str, ...]:
        targets = self.tools[name].targets
        assert targets is not None
        return targets(self.arguments(name, **arguments))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret\n")
    root = tmp_path / ".parent" / "ws"  # a parent that starts with a dot must not matter
    root.mkdir(parents=True)
    return root


@pytest.fixture
def outside(tmp_path: Path, workspace: Path) -> Path:
    return tmp_path / "outside"


@pytest.fixture
def hands(workspace: Path) -> Hands:
    return Hands(workspace)
