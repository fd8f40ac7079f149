"""Each conversation is judged by its own counts, and only by what the server makes tokens of."""

from __future__ import annotations

from typing import Any

from dialect_kit import request

from lmagent.core.messages import Message, Text, Thinking, ToolCall, ToolResult, user
from lmagent.core.model import ModelRequest, Usage
from lmagent.providers.dialects.truth import Watches

FIRST = user("first question " + "blah " * 300)


def asked(*messages: Message, **fields: Any) -> ModelRequest:
    return request(messages=[FIRST, *messages], **fields)


def test_a_conversation_is_known_again_while_nothing_changes_what_is_made_of_it() -> None:
    watches = Watches()
    known = watches.of(asked())
    assert watches.of(asked(user("more"))) is known
    for other in (
        asked(model="another"),
        asked(tool_choice="none"),
        asked(constrain=True),
        asked(system="another"),
        request(messages=[user("another")]),
    ):
        assert watches.of(other) is not known
    assert watches.of(asked()) is known


def test_another_model_with_fewer_tokens_for_the_same_is_no_cut() -> None:
    watches = Watches()
    for model, ratio in (("a", 4), ("b", 5), ("a", 4)):
        wanted = asked(model=model)
        watch = watches.of(wanted)
        size = watch.size(wanted)
        assert watch.meter.check(size, Usage(size // ratio, 5)) is None


def test_tools_that_are_left_out_where_none_may_be_called_are_no_cut() -> None:
    watches = Watches()
    for choice, tools in (("auto", 2000), ("none", 0), ("auto", 2000)):
        wanted = asked(tool_choice=choice)
        watch = watches.of(wanted)
        size = watch.size(wanted)
        assert watch.meter.check(size, Usage(size // 4 + tools, 5)) is None


def test_thoughts_before_the_last_words_of_the_user_are_not_expected_in_the_prompt() -> None:
    thought = Message("assistant", (Thinking("Let me think. " * 400), ToolCall("c1", "read", "{}")))
    turn = [thought, Message("tool", (ToolResult("c1", "ok", "x"),))]
    later = [*turn, Message("assistant", (Text("Done."),)), user("Thanks. " * 60)]
    watches = Watches()
    watch = watches.of(asked())
    alone = watch.size(asked(keep_thinking=True))
    during = watch.size(asked(*turn, keep_thinking=True))
    assert during - alone > 5000
    assert watch.size(asked(*later, keep_thinking=True)) - alone < 1000
    assert watch.size(asked(*turn, keep_thinking=False)) - alone < 100


def test_what_the_server_did_not_count_is_estimated() -> None:
    watch = Watches().of(asked())
    size = watch.size(asked())
    watch.meter.check(size, Usage(10**12, 5))
    assert watch.corrected(Usage(10**12, 5), size) == Usage(size // 4, 5, 0, estimated=True)
    watch.meter.check(size, Usage(size // 4, 5))
    assert watch.corrected(Usage(size // 4, 5), size) == Usage(size // 4, 5)
