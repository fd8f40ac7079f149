"""vision: the model is asked about an image, beside the conversation."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import anyio
import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from testkit.servers.llamacpp import LlamaCppServer

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import SetModel, Submit
from lmagent.core.errors import ServerFailure, ToolError, Unreachable
from lmagent.core.messages import Image, Message, Text, user
from lmagent.core.model import ModelReply, Usage
from lmagent.core.tool import ToolContext
from lmagent.engine.budget import tokens_spent
from lmagent.engine.lane import run_until_idle
from lmagent.engine.state import SessionState
from lmagent.testing.script import call, say
from lmagent.tools.vision import LARGEST, Vision, vision_tool


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    + chunk(b"IEND", b"")
)


def look(workspace: Path, path: str, answer: object = "A red dot.") -> tuple[str, list]:
    asked: list = []

    async def stream(request):
        asked.append(request)
        if isinstance(answer, Exception):
            raise answer
        yield ModelReply(Message("assistant", (Text(str(answer)),)), "stop", Usage())

    async def main() -> str:
        context = ToolContext("s", "c", workspace, {}, lambda _: None)
        tool = vision_tool(stream, {"s": "seer"}.__getitem__)
        return (await tool.run(Vision(path, "What is it?"), context)).content

    return anyio.run(main), asked


def test_the_image_goes_to_the_model_with_the_question(tmp_path):
    (tmp_path / "dot.png").write_bytes(PNG)
    said, (request,) = look(tmp_path, "dot.png")
    assert said == "A red dot."
    assert request.model == "seer"
    assert request.messages[0].parts == (Text("What is it?"), Image("image/png", base64.b64encode(PNG).decode()))


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.svg", b"<svg onload='x'/>", "is no image"),
        ("a.png", b"<html>", "is no image"),
        ("a.png", b"", "is no image"),
        ("a.png", b"\x89PNG\r\n\x1a\n", "is no image"),
        ("a.jpg", b"\xff\xd8\xff\xd9", "is no image"),
        ("a.bmp", b"BM, said the note", "is no image"),
        ("a.png", PNG + b"\0" * LARGEST, "larger than 20 MB"),
        ("a.png", PNG[:16] + (50_000).to_bytes(4) * 2 + PNG[24:], "50000 x 50000 pixels"),
    ],
)
def test_what_is_no_image_is_never_sent(tmp_path, name, content, why):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ToolError, match=why):
        look(tmp_path, name)


def test_a_path_outside_and_one_that_is_not_there_are_refused(tmp_path):
    for path in ("../x.png", "/etc/hostname", "nothing.png"):
        with pytest.raises(ToolError):
            look(tmp_path, path)


@pytest.mark.parametrize("answer", [ServerFailure("it broke"), "  "])
def test_a_model_that_fails_or_says_nothing_is_a_clear_error(tmp_path, answer):
    (tmp_path / "dot.png").write_bytes(PNG)
    with pytest.raises(ToolError, match="model"):
        look(tmp_path, "dot.png", answer)


@pytest.mark.parametrize(
    ("sees", "wish", "offered"),
    [(True, "auto", True), (False, "auto", False), (False, "true", True), (True, "false", False)],
)
def test_it_is_offered_only_when_the_model_can_see(tmp_path, sees, wish, offered):
    (tmp_path / "dot.png").write_bytes(PNG)
    script = [
        call("use_tool", name="vision", arguments={"path": "dot.png"}),
        say("A red dot."),
        say("It is a red dot."),
    ]

    async def main() -> None:
        with LlamaCppServer(script, context=32768, vision=sees) as server:
            host = await open_host(
                HostOptions(tmp_path, {"llm_url": server.base_url, "vision_enabled": wish}), say=print
            )
            session = await host.new_session()
            await session.send(Submit(message=user("What is in dot.png?")))
            await run_until_idle(session)
            await host.aclose()
            assert ("- vision(" in str(server.chats[0].body["messages"])) == offered
            results = [e for e in host.store.read(session.state.session) if isinstance(e, ev.ToolFinished)]
            assert (results[0].content == "A red dot.") == offered
            if offered:
                sent = server.chats[1].body["messages"][-1]["content"]
                assert [part["type"] for part in sent] == ["text", "image_url"]

    anyio.run(main)


def test_a_session_with_a_model_of_its_own_asks_that_one(tmp_path):
    (tmp_path / "dot.png").write_bytes(PNG)
    script = [call("use_tool", name="vision", arguments={"path": "dot.png"}), say("A red dot."), say("Red.")]

    async def main() -> None:
        with LlamaCppServer(script, context=32768, vision=True) as server:
            options = {"llm_url": server.base_url, "llm_model": "first", "vision_enabled": "true"}
            host = await open_host(HostOptions(tmp_path, options), say=print)
            session = await host.new_session()
            await session.send(SetModel(model="second"))
            await session.send(Submit(message=user("What is in dot.png?")))
            await run_until_idle(session)
            await host.aclose()
            assert [chat.body["model"] for chat in server.chats] == ["second"] * 3

    anyio.run(main)


def finished(**data: object) -> ev.ToolFinished:
    event = ev.ToolFinished(call_id="c", tool="vision", status="ok", content="a dot", data=data)
    decoded = ev.decode(ev.encode(event))
    assert isinstance(decoded, ev.ToolFinished)
    return decoded


def test_a_look_counts_for_the_budgets_of_its_session():
    state = SessionState(session="s")
    state.apply(finished(usage=to_builtins(Usage(1200, 30))))
    assert (state.steps_total, tokens_spent(state)) == (1, 1230)
    for odd in ({}, {"usage": "many"}, {"usage": {"prompt_tokens": "x"}}):
        state.apply(finished(**odd))
    state.apply(replace(finished(usage=to_builtins(Usage(1200, 30))), tool="mcp_look"))
    assert (state.steps_total, tokens_spent(state)) == (1, 1230)


def test_a_look_that_failed_counts_as_far_as_the_server_had_its_prompt(tmp_path):
    (tmp_path / "dot.png").write_bytes(PNG)
    for answer, counts in ((ServerFailure("no"), True), ("", True), (Unreachable("gone"), False)):
        with pytest.raises(ToolError) as refused:
            look(tmp_path, "dot.png", answer)
        assert ("usage" in refused.value.data) == counts
