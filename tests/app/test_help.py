"""The list of slash commands, as a terminal of 80 columns shows it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from lmagent.app.options import HostOptions
from lmagent.app.slash import SlashContext, dispatch
from lmagent.app.wiring import open_host
from lmagent.core.view import View


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / "ws/.lmagent/commands"
    own.mkdir(parents=True)
    (own / f"{'long-' * 8}name.md").write_text("# " + "many words " * 12 + "\nDo it.")

    async def ask() -> str:
        host = await open_host(HostOptions(tmp_path / "ws", {"llm_url": "http://127.0.0.1:9"}), say=print)
        answered = await dispatch("/help", SlashContext(host, None, View()))
        await host.aclose()
        return answered.text

    return anyio.run(ask)


def test_no_row_is_wider_than_80_columns(text: str) -> None:
    assert [row for row in text.splitlines() if len(row) > 80] == []


def test_what_a_command_does_stands_beside_it_or_below_a_long_one(text: str) -> None:
    rows = text.splitlines()
    assert f"{'/help':<25}list the commands" in rows
    at = rows.index("/mode [auto|normal|manual]")
    assert rows[at + 1] == " " * 25 + "pick or change the permission mode"
    assert " ".join(" ".join(rows).split()).count("undo the last N calls, the last turn, or all") == 1


def test_commands_are_listed_under_headings_and_the_keys_come_last(text: str) -> None:
    heads = [part.partition("\n")[0] for part in text.split("\n\n")]
    assert heads == [
        "Conversation:",
        "Changes of files:",
        "Long work:",
        "Model and settings:",
        "Facts:",
        "From files:",
        "Keys:",
    ]
    assert "!!COMMAND" in text.split("\n\n")[-1]
