"""Arguments of native calls that are damaged: what is plainly complete runs, as in a call in text, and nothing else."""

import json
from typing import Any

import pytest

from lmagent.core.model import ToolSpec
from lmagent.providers.assemble import Assembler
from lmagent.providers.textcalls import parse_text

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}}
TOOL = ToolSpec("read", "Read.", SCHEMA)


def native(arguments: str, finish: str | None = "tool_calls") -> tuple[str, bool]:
    """The arguments, and whether the call was marked as cut off."""
    assembler = Assembler()
    entry = {"index": 0, "id": "c", "function": {"name": "read", "arguments": arguments}}
    choice: dict[str, Any] = {"delta": {"tool_calls": [entry]}, "finish_reason": finish}
    assembler.feed(json.dumps({"choices": [choice]}).encode())
    reply = assembler.reply(taken=(), prompt_bytes=1, first_token_s=0, total_s=0)
    (call,) = reply.message.tool_calls
    return call.arguments, call.id in reply.truncated_calls


@pytest.mark.parametrize(
    "damaged",
    [
        '{"path": "a", "limit": 5,}',
        "{'path': 'a', 'limit': 5}",
        '{path: "a", limit: 5}',
        '{"path": "a" "limit": 5}',
        "{“path”: “a”, “limit”: 5}",
        '```json\n{"path": "a", "limit": 5}\n```',
        '{"limit": 5, "path": "a"}}',
        '{"limit": 5, "path": "a"',
        '{"limit": 5, "path": "a"\n',
    ],
)
def test_damage_that_can_only_mean_one_thing_is_repaired(damaged: str) -> None:
    arguments, cut = native(damaged)
    assert json.loads(arguments) == {"path": "a", "limit": 5}
    assert not cut


@pytest.mark.parametrize(
    "damaged",
    [
        '{"path": "a',
        '{"path": "a", "limit": 5',
        '{"path": "a",',
        '{"path":',
        '{"path": "a"}{"path": "b"}',
        '{"path": "a"} and more',
        '{"path": "say "a"',
        '{"limit": NaN}',
        "[1, 2]",
        "read it",
        "{",
    ],
)
def test_what_may_mean_something_else_is_passed_on_as_it_came(damaged: str) -> None:
    assert native(damaged) == (damaged, False)


@pytest.mark.parametrize("damaged", ['{"limit": 5, "path": "a"', '{"path": "a'])
@pytest.mark.parametrize("finish", ["length", None])
def test_brackets_are_never_closed_where_the_reply_may_have_been_cut(damaged: str, finish: str | None) -> None:
    assert native(damaged, finish) == (damaged, True)


@pytest.mark.parametrize(
    "damaged", ['{"path": "a", "limit": 5,}', "{'path': 'a', 'limit': 5}", '{"path": "a", "limit": 5']
)
def test_a_call_in_text_with_the_same_damage_is_read_the_same(damaged: str) -> None:
    (call,) = parse_text(f'<tool_call>{{"name": "read", "arguments": {damaged}}}</tool_call>', [TOOL]).calls
    assert call.arguments == {"path": "a", "limit": 5}
