"""Files and images that a message names."""

from __future__ import annotations

import base64
import json
import struct
import zlib

import pytest
from terminal import Terminal

from lmagent.testing import ScriptedServer
from lmagent.testing.script import say


def png() -> bytes:
    def piece(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 2, 1, 8, 0, 0, 0, 0)
    body = piece(b"IDAT", zlib.compress(b"\0\xff\0"))
    return b"\x89PNG\r\n\x1a\n" + piece(b"IHDR", head) + body + piece(b"IEND", b"")


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\nbeta\n")
    (folder / "two words.txt").write_text("gamma\n")
    (folder / "tool.bin").write_bytes(b"\x7fELF\0\0\0")
    (folder / "shot.png").write_bytes(png())
    (folder / "big.log").write_text("".join(f"line {number}\n" for number in range(50_000)))
    return folder


def sent(server: ScriptedServer) -> str:
    return json.dumps(server.chats[-1].body["messages"][-1]["content"])


@pytest.mark.parametrize("how", [(), ("--plain",)], ids=["screen", "plain"])
def test_a_file_named_with_an_at_sign_is_attached_and_said_so_in_one_line(workspace, how):
    with ScriptedServer([say("Read.")]) as server, Terminal(workspace, server.base_url, *how) as terminal:
        terminal.enter('compare @a.txt, @"two words.txt" and me@example.org, not @nobody')
        terminal.wait_for("Read.")
        for shown in ("attached a.txt (2 lines)", "attached two words.txt (1 line)"):
            terminal.wait_for(shown)
    assert "[Attached by the user: a.txt, 2 lines]\\nalpha\\nbeta" in sent(server)
    assert "gamma" in sent(server)
    assert "nobody is not attached" not in terminal.screen


def test_what_is_no_text_and_what_lies_elsewhere_is_refused_with_a_sentence(workspace):
    (workspace.parent / "secret.txt").write_text("hidden\n")
    with ScriptedServer([say("Hm.")]) as server, Terminal(workspace, server.base_url) as terminal:
        terminal.enter("look at @tool.bin and @../secret.txt")
        terminal.wait_for("tool.bin is not attached: it is no text")
        terminal.wait_for("../secret.txt is not attached")
        terminal.wait_for("Hm.")
    assert "hidden" not in sent(server)


def test_a_long_file_is_cut_to_what_the_window_has_room_for(workspace):
    with ScriptedServer([say("Long.")]) as server:
        with Terminal(workspace, server.base_url, LMAGENT_CONTEXT_WINDOW="8192") as terminal:
            terminal.enter("read @big.log")
            terminal.wait_for("attached big.log (lines 1 to ")
            terminal.wait_for("Long.")
    assert "line 400" in sent(server)
    assert "line 1200" not in sent(server)


@pytest.mark.parametrize("named", ["shot.png", "@shot.png", "{workspace}/shot.png"])
def test_an_image_goes_with_the_message_if_the_model_takes_images(workspace, named):
    with ScriptedServer([say("A picture.")]) as server:
        with Terminal(workspace, server.base_url, VISION_ENABLED="true") as terminal:
            terminal.enter(f"what is on {named.format(workspace=workspace)}?")
            terminal.wait_for("attached")
            terminal.wait_for("A picture.")
    assert base64.b64encode(png()).decode() in sent(server)


def test_a_model_that_takes_no_images_gets_none_and_the_user_a_sentence(workspace):
    with ScriptedServer([say("Which one?")]) as server:
        with Terminal(workspace, server.base_url, VISION_ENABLED="false") as terminal:
            terminal.enter("what is on @shot.png")
            terminal.wait_for("shot.png is not attached: test-model takes no images")
            terminal.wait_for("Which one?")
    assert "image_url" not in sent(server)


def test_a_resumed_conversation_shows_what_was_typed_without_the_file(workspace):
    with ScriptedServer([say("Read.")]) as server:
        with Terminal(workspace, server.base_url) as terminal:
            terminal.enter("see @a.txt")
            terminal.wait_for("Read.")
            terminal.enter("/exit")
            terminal.ended()
        with Terminal(
            workspace, server.base_url, "--resume", terminal.screen.split("--resume ")[1].split()[0]
        ) as again:
            again.wait_for("Read.")
            assert "> see @a.txt" in again.screen
            assert "alpha" not in again.screen
