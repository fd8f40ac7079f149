"""Calls that arrive as text: the provider makes calls of them, and shows nothing of their markup."""

import json

import pytest
from provider_loopback import Answer, ask, delta, request, sse

from lmagent.core.model import ModelReply, TextChunk, ThinkingChunk

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'


def play(*pieces: str, finish: str = "stop", **more: object):
    last = delta(finish, content=pieces[-1])
    run = ask(Answer([sse(*(delta(content=piece) for piece in pieces[:-1]), last)]), asked=request(**more))
    assert isinstance(run.reply, ModelReply)
    shown = "".join(event.text for event in run.events if isinstance(event, TextChunk))
    return run.reply, shown


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_call_in_text_is_run_and_its_markup_never_shown(size):
    text = f"I will read it.\n{CALL}"
    reply, shown = play(*(text[at : at + size] for at in range(0, len(text), size)))
    (call,) = reply.message.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("read", {"path": "a.txt"})
    assert (reply.finish_reason, reply.message.text) == ("tool_calls", "I will read it.")
    assert shown == "I will read it."


def test_two_replies_never_share_the_id_of_a_call():
    ids = {play(CALL)[0].message.tool_calls[0].id for _ in range(3)}
    assert len(ids) == 3


def test_a_call_in_a_thought_is_not_run():
    reply, shown = play(f"<think>Maybe {CALL}</think>", "Done now.")
    assert reply.message.tool_calls == ()
    assert (reply.message.text, shown) == ("Done now.", "Done now.")


def test_a_call_that_the_end_cut_off_must_not_run():
    reply, shown = play('<tool_call>\n{"name": "read", "arguments": {"path": "a.t', finish="length")
    (call,) = reply.message.tool_calls
    assert (call.name, reply.truncated_calls) == ("read", {call.id})
    assert shown == ""


def test_at_the_token_limit_a_call_is_trusted_only_when_its_markup_was_closed():
    assert play(CALL, finish="length")[0].truncated_calls == frozenset()
    reply, _ = play(CALL.removesuffix("\n</tool_call>"), finish="length")
    assert reply.truncated_calls == {reply.message.tool_calls[0].id}


def test_arguments_that_cannot_be_read_go_on_as_they_came():
    reply, _ = play('<tool_call>{"name": "read", "arguments": {"path": a.txt" oops}}</tool_call>')
    (call,) = reply.message.tool_calls
    assert "oops" in call.arguments


def understood(path: str, **fields: object):
    """A call as the server sends it that understood it."""
    arguments = json.dumps({"path": path})
    return delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "read", "arguments": arguments}}], **fields)


def paths(*chunks: object) -> tuple[list[str], ModelReply]:
    run = ask(Answer([sse(*chunks)]))
    return [json.loads(call.arguments)["path"] for call in run.reply.message.tool_calls], run.reply


def test_a_call_that_the_server_understood_and_left_in_the_text_is_one_call():
    found, reply = paths(delta(content=CALL), understood("a.txt"), delta("tool_calls"))
    assert (found, reply.message.text) == (["a.txt"], "")


def test_a_call_that_the_server_left_in_the_text_beside_one_that_it_understood_is_run_in_its_place():
    assert paths(delta(content=CALL), understood("b"), delta("tool_calls"))[0] == ["a.txt", "b"]
    found, reply = paths(understood("b"), delta(content=f"And:\n{CALL}"), delta("tool_calls"))
    assert (found, reply.message.text) == (["b", "a.txt"], "And:")
    assert (reply.text_format, reply.truncated_calls) == ("hermes", frozenset())


def test_what_only_looks_like_a_call_beside_one_that_the_server_understood_stays_text():
    text = 'The object of such a call:\n```json\n{"name": "read", "arguments": {"path": "a.txt"}}\n```'
    found, reply = paths(delta(content=text), understood("b"), delta("tool_calls"))
    assert (found, reply.message.text) == (["b"], text)


def test_an_opening_tag_that_the_server_left_in_the_text_is_no_call():
    found, reply = paths(delta(content="I read it.\n<tool_call>\n"), understood("b"), delta("tool_calls"))
    assert (found, reply.message.text, reply.truncated_calls) == (["b"], "I read it.", frozenset())


def test_a_call_in_text_that_was_cut_off_beside_one_that_the_server_understood_is_reported():
    text = '<tool_call>\n{"name": "write", "arguments": {"path": "a'
    found = ask(Answer([sse(understood("b"), delta("length", content=text))])).reply
    first, second = found.message.tool_calls
    assert (first.name, second.name) == ("read", "write")
    assert second.id in found.truncated_calls


def test_without_tools_and_where_none_may_be_called_text_is_text():
    for fields in ({"tools": ()}, {"tool_choice": "none"}):
        reply, shown = play(CALL, **fields)
        assert reply.message.tool_calls == ()
        assert reply.message.text == shown == CALL


def test_thoughts_are_shown_as_thoughts_while_they_come():
    run = ask(Answer([sse(delta(content="<think>hm"), delta("stop", content="</think>The answer."))]))
    assert [type(event) for event in run.events[:-1]] == [ThinkingChunk, TextChunk]
    assert run.reply.message.text == "The answer."
