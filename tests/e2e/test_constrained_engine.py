"""Constrained calls on the real llama.cpp engine, with a model of random weights that knows nothing of tools."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection

import anyio
import jsonschema
import pytest
from testkit.engine import EngineServer
from testkit.gguf import build_tiny_gguf

from lmagent.app.clock import SystemClock
from lmagent.core.messages import Message, Text, Thinking, user
from lmagent.core.model import ModelReply, ModelRequest, ToolSpec
from lmagent.providers.constrain import schema_for
from lmagent.providers.encode import BodyEncoder
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.transport import HttpTransport

pytestmark = [pytest.mark.engine, pytest.mark.long]

WORD = {"type": "string", "maxLength": 20}
TOOLS = (
    ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": WORD}, "required": ["path"]}),
    ToolSpec(
        "write",
        "Write a file.",
        {"type": "object", "properties": {"path": WORD, "lines": {"type": "integer"}}, "required": ["path"]},
    ),
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    pytest.importorskip("xllamacpp", reason="needs the engine: xllamacpp is not installed")
    with EngineServer(build_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")) as server:
        yield server


def request(number: int, *, thought: str = "") -> ModelRequest:
    earlier = (user("Begin."), Message("assistant", (Thinking(thought), Text("Well.")))) if thought else ()
    messages = (*earlier, user(f"Do step {number}."))
    return ModelRequest("tiny", "You work.", TOOLS, messages, temperature=1.0, max_tokens=400, constrain=True)


@pytest.mark.parametrize("thought", ["", "I wonder."])
def test_every_reply_is_a_valid_call_or_an_answer(engine, thought):
    validator = jsonschema.Draft202012Validator(schema_for(TOOLS, think=bool(thought)))
    for number in range(6):
        body = json.loads(BodyEncoder().encode(request(number, thought=thought)))
        connection = HTTPConnection(engine.url.removeprefix("http://"))
        connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": False}))
        choice = json.loads(connection.getresponse().read())["choices"][0]
        connection.close()
        if choice["finish_reason"] != "length":  # what the limit cut off is not whole
            validator.validate(json.loads(choice["message"]["content"]))


def test_the_provider_gives_calls_or_text_and_never_shows_json(engine):
    async def ask(number: int) -> ModelReply:
        provider = OpenAIChat(engine.base_url, transport=HttpTransport(), clock=SystemClock())
        events = [event async for event in provider.stream(request(number))]
        await provider.aclose()
        assert len(events) == 1  # the reply alone: there was nothing to show
        (reply,) = events
        assert isinstance(reply, ModelReply)
        return reply

    replies = [anyio.run(ask, number) for number in range(8)]
    calls = [call for reply in replies for call in reply.message.tool_calls if call.id not in reply.truncated_calls]
    assert calls, "a model of random weights chooses a call now and then"
    schemas = {tool.name: tool.parameters for tool in TOOLS}
    for call in calls:
        jsonschema.Draft202012Validator(schemas[call.name]).validate(json.loads(call.arguments))
    assert not any('"tool"' in reply.message.text for reply in replies)
