"""Thoughts go back to models that want them, by the name that the server gives; a setting wins."""

import anyio
from kit import bench, call
from msgspec.structs import replace

from lmagent.core.messages import Message, Thinking


def thinking_call(served: str):
    asked = call(("read", '{"path": "a"}'))
    return replace(asked, message=Message("assistant", (Thinking("hm"), *asked.message.parts)), model=served)


async def kept(served: str, setting: bool | None) -> list[bool]:
    made = await bench(thinking_call(served), keep_thinking=setting)
    await made.submit()
    return [request.keep_thinking for request in made.model.requests]


def test_the_models_own_rule_holds_from_the_first_thought_on():
    assert anyio.run(kept, "gpt-oss:20b", None)[1:] == [True]
    assert anyio.run(kept, "qwen3:8b", None)[1:] == [False]


def test_what_a_person_set_wins_over_the_rule():
    assert anyio.run(kept, "gpt-oss:20b", False) == [False, False]
    assert anyio.run(kept, "qwen3:8b", True) == [True, True]
