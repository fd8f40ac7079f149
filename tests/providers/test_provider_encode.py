import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lmagent.core.messages import Image, Message, Text, Thinking, ToolCall, ToolResult, assistant, user
from lmagent.core.model import ModelRequest, ToolSpec
from lmagent.providers.encode import BodyEncoder

TOOL = ToolSpec("read", "Read.", {"type": "object", "properties": {}})


def request(messages: Any, **fields: Any) -> ModelRequest:
    values: dict[str, Any] = {"model": "m", "system": "s", "tools": (TOOL,), "messages": messages, **fields}
    return ModelRequest(**values)


def wire(*messages: Message, **fields: Any) -> list[dict[str, Any]]:
    return json.loads(BodyEncoder().encode(request(messages, **fields)))["messages"]


def called(arguments: str, name: str = "read", text: str = "") -> Message:
    return Message("assistant", (*((Text(text),) if text else ()), ToolCall("c1", name, arguments)))


def test_the_body_has_its_keys_in_a_fixed_order_with_the_messages_last() -> None:
    body = BodyEncoder().encode(
        request([user("hi")], temperature=0.5, max_tokens=9, tool_choice="none", response_schema={"type": "object"})
    )
    assert list(json.loads(body)) == [
        "model", "stream", "stream_options", "temperature", "max_tokens", "tools", "tool_choice", "response_format",
        "messages",
    ]  # fmt: skip


def test_what_is_left_to_the_server_is_not_sent() -> None:
    body = json.loads(BodyEncoder().encode(request([user("hi")], model="", tools=(), tool_choice="none")))
    assert list(body) == ["stream", "stream_options", "messages"]


def test_a_system_text_comes_first_and_an_empty_one_not_at_all() -> None:
    assert wire(user("hi"))[0] == {"role": "system", "content": "s"}
    assert wire(user("hi"), system="") == [{"role": "user", "content": "hi"}]


def test_text_is_a_plain_string_and_images_make_parts() -> None:
    message = Message("user", (Text("look"), Image("image/png", "AAAA")))
    assert wire(message)[1]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    assert wire(Message("user", (Text("a"), Text("b"))))[1]["content"] == "ab"


def test_content_beside_calls_is_null_when_empty() -> None:
    assert wire(called("{}"))[1]["content"] is None
    assert wire(called("{}", text="x"))[1]["content"] == "x"


def test_arguments_are_always_the_json_of_an_object() -> None:
    def sent(arguments: str) -> str:
        return wire(called(arguments))[1]["tool_calls"][0]["function"]["arguments"]

    assert sent('{"path": "a"}') == '{"path": "a"}'
    for damaged in ('{"path": "a', "[1]", '{"a": NaN}'):
        assert json.loads(sent(damaged)) == {"unreadable": "see the result"}
    assert sent("") == "{}"


def test_a_name_that_no_server_would_take_is_made_acceptable() -> None:
    assert wire(called("{}", name="read file!"))[1]["tool_calls"][0]["function"]["name"] == "read_file_"
    assert wire(called("{}", name=""))[1]["tool_calls"][0]["function"]["name"] == "unnamed"


def test_results_carry_the_id_of_their_call() -> None:
    result = Message("tool", (ToolResult("c1", "ok", "done"),))
    assert wire(result)[1] == {"role": "tool", "tool_call_id": "c1", "content": "done"}


def test_thoughts_are_sent_back_only_on_request() -> None:
    message = Message("assistant", (Thinking("hm"), Text("x")))
    assert "reasoning_content" not in wire(message)[1]
    assert wire(message, keep_thinking=True)[1]["reasoning_content"] == "hm"


def test_lone_surrogates_do_not_crash_and_pairs_become_characters() -> None:
    assert wire(user("a\ud83d b"))[1]["content"] == "a� b"
    assert wire(user("\ud83e\udd99"))[1]["content"] == "🦙"
    assert wire(called('{"a": "\ud83d"}'))[1]["tool_calls"][0]["function"]["arguments"]


def test_fields_that_a_server_does_not_know_are_left_out() -> None:
    asked = request([user("hi")], temperature=0.5, max_tokens=9)
    body = json.loads(BodyEncoder().encode(asked, {"stream_options", "max_tokens", "temperature"}))
    assert list(body) == ["model", "stream", "max_completion_tokens", "tools", "messages"]
    assert "max_completion_tokens" not in json.loads(
        BodyEncoder().encode(asked, {"max_tokens", "max_completion_tokens"})
    )


TEXTS = st.text(max_size=20)
MESSAGES = st.one_of(
    TEXTS.map(user),
    TEXTS.map(assistant),
    TEXTS.map(called),
    TEXTS.map(lambda text: Message("tool", (ToolResult("c1", "ok", text),))),
)


@settings(deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=12), st.data())
def test_each_body_is_the_beginning_of_the_next(messages: list[Message], data: st.DataObject) -> None:
    encoder = BodyEncoder()
    steps = sorted(data.draw(st.sets(st.integers(1, len(messages)), min_size=1)))
    growing: list[Message] = []
    bodies: list[bytes] = []
    for step in steps:
        growing.extend(messages[len(growing) : step])
        bodies.append(encoder.encode(request(growing)))
    for earlier, later in itertools.pairwise(bodies):
        assert earlier.endswith(b"]}")
        assert later.startswith(earlier[:-2])
    assert bodies[-1] == BodyEncoder().encode(request(growing))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6), st.booleans()), max_size=12))
def test_a_cached_encoding_is_the_same_as_a_fresh_one(asks: list[tuple[int, int, bool]]) -> None:
    conversations = [[user(f"{name}{n}") for n in range(7)] for name in "abcd"]
    encoder = BodyEncoder()
    for which, length, branch in asks:
        messages = [*conversations[which][:length], *([user("side")] if branch else [])]
        asked = request(messages, keep_thinking=which == 1, tools=(TOOL,) if which else ())
        assert encoder.encode(asked) == BodyEncoder().encode(asked)


def test_a_long_conversation_costs_a_step_no_more_than_a_short_one() -> None:
    encoder = BodyEncoder()
    messages = [user(f"message {n} " + "x" * 200) for n in range(2000)]
    encoder.encode(request(messages))
    conversation = encoder._conversations[0]
    before = len(conversation.buffer)
    messages.append(user("new"))
    encoder.encode(request(messages))
    assert len(encoder._conversations) == 1
    assert len(conversation.buffer) - before < 60


def test_sub_conversations_do_not_push_each_other_out() -> None:
    encoder = BodyEncoder()
    main, child = [user("main")], [user("child")]
    for n in range(5):
        main.append(user(f"m{n}"))
        child.append(user(f"c{n}"))
        encoder.encode(request(main))
        encoder.encode(request(child, system="child"))
    assert len(encoder._conversations) == 2
