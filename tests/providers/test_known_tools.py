"""A call in text may name any tool of the session: of the block, of the catalogue, by an alias."""

import json
from typing import Any

import msgspec
import pytest

from lmagent.core.model import ModelRequest, ToolSpec
from lmagent.core.tool import Tool, ToolOutput
from lmagent.providers.assemble import Assembler
from lmagent.providers.encode import BodyEncoder
from lmagent.providers.openai_chat import callable_tools


class Path(msgspec.Struct):
    path: str


async def nothing(_arguments: Any, _context: Any) -> ToolOutput:
    return ToolOutput("")


READ = Tool("read", "Read.", Path, "read", nothing, aliases=("read_file",))
LATE = Tool("git_log", "Log.", Path, "read", nothing, deferred=True)
REQUEST = ModelRequest("m", "s", (READ.spec, ToolSpec("use_tool", "", {})), [], others=lambda: (READ, LATE))


def called(text: str, request: ModelRequest = REQUEST) -> list[tuple[str, str]]:
    assembler = Assembler(tools=callable_tools(request), known=request.tools)
    assembler.feed(json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}).encode())
    reply = assembler.reply(taken=(), prompt_bytes=1, first_token_s=0, total_s=0)
    return [(call.name, call.arguments) for call in reply.message.tool_calls]


@pytest.mark.parametrize("name", ["read", "read_file", "git_log"])
@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "NAME", "arguments": {"path": "a"}}</tool_call>',
        '{"name": "NAME", "arguments": {"path": "a"}}',
        '```json\n{"name": "NAME", "arguments": {"path": "a"}}\n```',
        'NAME(path="a")',
        'Action: NAME\nAction Input: {"path": "a"}',
    ],
)
def test_every_tool_of_the_session_is_known_in_every_form(text: str, name: str) -> None:
    assert called(text.replace("NAME", name)) == [(name, '{"path":"a"}')]


def test_what_no_tool_is_called_stays_text_without_markup() -> None:
    assert called('{"name": "fly", "arguments": {"path": "a"}}') == []
    assert called('Use `read_file(path="a")` for that.') == []


def test_they_are_never_sent_and_count_for_nothing_where_no_call_may_come() -> None:
    assert b"git_log" not in BodyEncoder().encode(REQUEST)
    assert callable_tools(msgspec.structs.replace(REQUEST, tool_choice="none")) == ()
