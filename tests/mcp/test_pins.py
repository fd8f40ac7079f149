"""The list of known tools: several processes write it, its place may be full or damaged; what is not kept is asked."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from lmagent.core.errors import ConfigError, ToolError
from lmagent.core.tool import Answer, Question, ToolContext
from lmagent.mcp.pins import Pins
from lmagent.mcp.spec import McpTool, ServerSpec

SPEC = ServerSpec("shop", ("shop",))


class Asked:
    """The questions of a check, and what is done before each answer."""

    def __init__(self, before: Callable[[], Awaitable[None]] | None = None) -> None:
        self.questions: list[Question] = []
        self._before = before

    async def __call__(self, question: Question) -> Answer:
        self.questions.append(question)
        if self._before is not None:
            await self._before()
        return Answer(True)


async def check(pins: Pins, name: str, text: str, asked: Asked | None = None) -> None:
    context = ToolContext("", "call", Path(), {}, lambda _: None, ask=asked or Asked())
    tool = McpTool(name, text)
    await pins.check(SPEC, f"shop_{name}", tool, tool, context)


def test_two_processes_that_write_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    def write(part: str) -> None:
        async def all_of_it() -> None:
            for number in range(25):
                await check(Pins(tmp_path, tmp_path), f"{part}{number}", "One.")

        anyio.run(all_of_it)

    threads = [threading.Thread(target=write, args=(part,)) for part in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asked = Asked()

    async def changed() -> None:
        for part in "ab":
            for number in range(25):
                await check(Pins(tmp_path, tmp_path), f"{part}{number}", "Other.", asked)

    anyio.run(changed)
    assert len(asked.questions) == 50


@pytest.mark.anyio
async def test_a_tool_that_another_process_allows_meanwhile_is_called_again(tmp_path: Path) -> None:
    one, other = Pins(tmp_path, tmp_path), Pins(tmp_path, tmp_path)
    await check(one, "buy", "First.")
    asked = Asked(before=lambda: check(other, "buy", "Third."))
    with pytest.raises(ToolError, match="allowed elsewhere at the same time"):
        await check(one, "buy", "Second.", asked)
    await check(one, "buy", "Second.", asked := Asked())
    assert len(asked.questions) == 1


@pytest.mark.anyio
async def test_without_a_place_to_keep_it_a_new_tool_is_not_called_and_a_known_one_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("no folder")
    with pytest.raises(ConfigError):
        await check(Pins(data, tmp_path), "buy", "First.")
    data.unlink()
    await check(Pins(data, tmp_path), "buy", "First.")
    (data / "mcp" / "tools.lock").unlink()
    (data / "mcp" / "tools.lock").mkdir()
    await check(Pins(data, tmp_path), "buy", "First.")
    with pytest.raises(ConfigError, match="a lock could not be taken"):
        await check(Pins(data, tmp_path), "sell", "First.")


@pytest.mark.anyio
async def test_a_damaged_list_refuses_with_the_command_that_helps(tmp_path: Path) -> None:
    file = tmp_path / "mcp" / "tools.json"
    file.parent.mkdir()
    file.write_text("{damaged")
    with pytest.raises(ConfigError, match=r"is damaged") as failure:
        await check(Pins(tmp_path, tmp_path), "buy", "First.")
    assert failure.value.fix.startswith("delete it (rm ")
