"""Menus that open while typing, pickers, themes, and a terminal without colours."""

from __future__ import annotations

import re

import pytest
from terminal import Terminal

from lmagent.terminal.rich_style import RichStyle
from lmagent.terminal.style import resolved_theme
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say

COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9\d|10\d)(?:;[0-9;]*)?m")


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "apples.txt").write_text("alpha\n")
    return folder


def settings(workspace, text):
    file = workspace.parent / ".config/lmagent/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_the_menu_of_commands_opens_while_typing_and_says_how_many_there_are(workspace):
    with ScriptedServer([], strict=True) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.type("/")
        rows = terminal.sees(lambda rows: any("choose" in row and "Tab takes" in row for row in rows))
        assert any("/resume" in row and "continue another session" in row for row in rows)
        terminal.type("stat")
        terminal.sees(lambda rows: any("show server, model, mode" in row for row in rows))
        terminal.type("\x1b[B\r")  # Down chooses, Enter takes and sends
        terminal.wait_for("workspace  ")


def test_a_path_is_taken_from_its_menu_and_the_line_goes_on(workspace):
    with ScriptedServer([say("Read.")]) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.type("look at @app")
        terminal.sees(lambda rows: any(row.strip().startswith("apples.txt") for row in rows))
        terminal.type("\x1b[B\r")
        terminal.enter("and count")
        terminal.wait_for("Read.")
        assert "look at @apples.txt and count" in str(server.chats[0].body["messages"][-1]["content"])


def test_plain_words_open_no_menu(workspace):
    with ScriptedServer([say("Hi.")]) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("mail me@example.org")
        terminal.wait_for("Hi.")
        assert "Esc closes" not in terminal.screen


def test_escape_closes_the_menu_and_keeps_the_text(workspace):
    with ScriptedServer([say("Hi.")]) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.type("read @app")
        terminal.sees(lambda rows: any("Esc closes" in row for row in rows))
        terminal.type("\x1b")
        terminal.sees(lambda rows: any("read @app" in row for row in rows) and not any("Esc closes" in r for r in rows))


@pytest.mark.parametrize("how", [(), ("--plain",)], ids=["screen", "plain"])
def test_a_theme_is_picked_and_kept_in_the_configuration(workspace, how):
    file = settings(workspace, "# mine\nllm_timeout = 99\n")
    with ScriptedServer([], strict=True) as server, Terminal(workspace, server.base_url, *how) as terminal:
        terminal.enter("/theme")
        terminal.wait_for("colours for a light background")
        terminal.enter("2" if how else "\x1b[B")
        terminal.wait_for("theme light, kept in")
    assert file.read_text() == '# mine\nllm_timeout = 99\ntheme = "light"\n'


@pytest.mark.parametrize("how", ["setting", "variable"])
def test_no_color_takes_colours_away_and_nothing_else(workspace, how):
    settings(workspace, 'theme = "none"\n' if how == "setting" else "")
    env = {"NO_COLOR": "1"} if how == "variable" else {}
    script = [say("# Title\n\nSome **bold** words and `code`.\n\n- one\n- two\n")]
    with ScriptedServer(script) as server, Terminal(workspace, server.base_url, **env) as terminal:
        terminal.type("/sta")
        terminal.sees(lambda rows: any("Esc closes" in row for row in rows))
        terminal.type("\x03")
        terminal.wait_for("Ctrl+C again leaves")
        terminal.enter("hello")
        terminal.wait_for("• two")
        terminal.wait_for("tokens (")  # the status line
        assert "**" not in terminal.screen
        assert "\x1b[1m" in terminal.shown
        assert COLOUR.findall(terminal.shown) == []


def test_help_has_headings_in_colour_and_tools_whole_words_in_80_columns(workspace):
    with ScriptedServer([], strict=True) as server, Terminal(workspace, server.base_url, columns=80) as terminal:
        terminal.enter("/help")
        terminal.wait_for("!!COMMAND")
        assert "\x1b[1;36mKeys:" in terminal.shown
        terminal.enter("/tools")
        rows = terminal.sees(lambda rows: any(row.startswith("report_result") for row in rows))
        columns = {
            row.index(row.split(None, 2)[2]) for row in rows if row.split()[1:2] in (["read"], ["write"], ["exec"])
        }
        assert len(columns) == 1


def test_a_light_background_gets_colours_that_can_be_read_on_it():
    assert resolved_theme("auto", {"COLORFGBG": "0;15"}) == "light"
    assert resolved_theme("auto", {"COLORFGBG": "15;0"}) == "dark"
    assert resolved_theme("auto", {}) == "dark"
    light = RichStyle(lambda: 80, "light")
    assert light.markdown("`code`").startswith("\x1b[1;34mcode\x1b[0m ")
    assert light.line("careful", "warning") == "\x1b[35mcareful\x1b[0m\n"
    assert RichStyle(lambda: 80).line("careful", "warning") == "\x1b[33mcareful\x1b[0m\n"
