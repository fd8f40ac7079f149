"""What servers and models do wrong, case by case: the task is done, or the failure honest, and nothing runs wrongly.

Each case is a server's script for one task (write OUT.txt), played against the whole program but for its process. More
cases, over 30 steps against each kind of server, are in `test_servers.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.engine.lane import run_until_idle
from lmagent.testing import faults, quirks
from lmagent.testing.script import (
    Behaviour,
    PlainAnswer,
    Reply,
    call,
    call_raw,
    cut,
    error_in_stream,
    hang,
    raw,
    refuse,
    reply,
    say,
    slow,
    status,
    think,
)
from lmagent.testing.server import ScriptedServer

pytestmark = pytest.mark.long

WRITE = call("write", path="OUT.txt", content="ok\n")
DONE = say("OUT.txt is written.")
ARGUMENTS = {"path": "OUT.txt", "content": "ok\n"}
JSON = json.dumps({"name": "write", "arguments": ARGUMENTS})


def play(script: Sequence[Behaviour], workspace: Path, **flags: object) -> ev.TurnFinished:
    """One turn against a server that gives these answers."""

    async def main() -> ev.TurnFinished:
        with ScriptedServer(list(script)) as server:
            settings = {
                "llm_url": server.base_url,
                "permission_mode": "auto",
                "llm_retry_delay": 0,
                "llm_max_retries": 3,
            }
            host = await open_host(HostOptions(workspace, {**settings, **flags}), say=print)
            session = await host.new_session()
            await session.send(Submit(message=user("Write ok into OUT.txt.")))
            with anyio.fail_after(60):
                finished = await run_until_idle(session)
            await host.aclose()
            assert finished is not None
            return finished

    return anyio.run(main)


def pieces(*entries: dict[str, object], finish: str | None = "tool_calls") -> PlainAnswer:
    """A call in pieces with these labels: `name` and `arguments` go inside, the rest beside."""
    deltas: list[dict[str, object]] = []
    for entry in entries:
        function = {key: entry.pop(key) for key in ("name", "arguments") if key in entry}
        deltas.append({"tool_calls": [{**entry, "function": function}]})
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if finish:
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return raw([*(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks), b"data: [DONE]\n\n"])


def in_pieces(name: str, arguments: dict[str, str]) -> list[dict[str, object]]:
    text = json.dumps(arguments)
    parts = (text[:9], text[9:])
    return [{"index": 0, "name": name, "arguments": ""}, *({"index": 0, "arguments": part} for part in parts)]


TEXTS = {
    "hermes": f"<tool_call>\n{JSON}\n</tool_call>",
    "hermes behind words": f"I will write it.\n\n<tool_call>\n{JSON}\n</tool_call>",
    "qwen coder": "<tool_call>\n<function=write>\n<parameter=path>\nOUT.txt\n</parameter>\n<parameter=content>\nok\n\n"
    "</parameter>\n</function>\n</tool_call>",
    "llama 3": '{"name": "write", "parameters": {"path": "OUT.txt", "content": "ok\\n"}}',
    "llama 3 python tag": '<|python_tag|>{"name": "write", "parameters": {"path": "OUT.txt", "content": "ok\\n"}}',
    "llama 4": '[write(path="OUT.txt", content="ok\\n")]',
    "mistral": f"[TOOL_CALLS] [{JSON}]",
    "mistral 13": f"[TOOL_CALLS]write[ARGS]{json.dumps(ARGUMENTS)}",
    "deepseek 3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>write<｜tool▁sep｜>"
    f"{json.dumps(ARGUMENTS)}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "granite": f"<|tool_call|>[{JSON}]",
    "glm": "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>OUT.txt</arg_value>\n<arg_key>content</arg_key>\n"
    "<arg_value>ok\n</arg_value>\n</tool_call>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>"
    f"{json.dumps(ARGUMENTS)}<|tool_call_end|><|tool_calls_section_end|>",
    "harmony": f"<|channel|>commentary to=functions.write <|constrain|>json<|message|>{json.dumps(ARGUMENTS)}<|call|>",
    "the seeds' own": f'<tool name="write">{json.dumps(ARGUMENTS)}</tool>',
    "fenced JSON": f"```json\n{JSON}\n```",
    "in a thought's shadow": f"<think>I should write.</think>\n<tool_call>\n{JSON}\n</tool_call>",
    "single quotes": f"<tool_call>\n{json.loads(JSON)!r}\n</tool_call>",
    "trailing comma": f"<tool_call>\n{JSON[:-2]},}},}}\n</tool_call>",
}

ASKED = json.dumps({"tool": "write", "arguments": ARGUMENTS})
CONSTRAINED = {
    **TEXTS,
    "the form asked for": ASKED,
    "in a fence": f"```json\n{ASKED}\n```",
    "after a word": f"Sure:\n{ASKED}",
    "twice, and another": f'{ASKED}\n\n{{"tool": "ls", "arguments": {{}}}}',
    "with a tag of thoughts": json.dumps(
        {"tool": "write", "arguments": {"path": "x.html", "content": "{{ x }}</think>"}}
    )
    + f"\n{ASKED}",
}

REPAIRED = {
    "arguments as an object": quirks.arguments_as_object(WRITE),
    "an alias of the tool": call("write_file", path="OUT.txt", content="ok\n"),
    "an alias of an argument": call("write", file_path="OUT.txt", content="ok\n"),
    "through use_tool": call("use_tool", name="write", arguments=ARGUMENTS),
    "an absolute path": call("write", path="/workspace/OUT.txt", content="ok\n"),
    "arguments that are a text of a text": call_raw("write", json.dumps(json.dumps(ARGUMENTS))),
    "an empty object before the arguments": pieces(
        {"index": 0, "id": "x", "name": "write", "arguments": "{}"}, *in_pieces("", ARGUMENTS)
    ),
    "index 0 for all, without ids, in pieces": pieces(
        *in_pieces("write", {"path": "OTHER.txt", "content": "x"}), *in_pieces("write", ARGUMENTS)
    ),
    "index 0 for all, without ids or arguments": pieces(
        {"index": 0, "name": "git_status"}, {"index": 0, "name": "write", "arguments": json.dumps(ARGUMENTS)}
    ),
    "one understood, one left in the text": reply(text=f"<tool_call>\n{JSON}\n</tool_call>", calls=call("ls").calls),
    "null for what is optional": call_raw("write", '{"path": "OUT.txt", "content": "ok\\n", "mode": null}'),
}

AGAIN = {
    "damaged arguments": [call_raw("write", '{"path": "OUT.txt", "content": ')],
    "arguments that are a list": [call_raw("write", "[1]")],
    "a missing argument": [call("write", path="OUT.txt")],
    "a tool that does not exist": [call("scribble", path="OUT.txt")],
    "a name without arguments in a stream without an end": [pieces({"index": 0, "name": "write"}, finish=None)],
    "no name": [call_raw("", "{}")],
    "an empty reply": [faults.empty_reply()],
    "two empty replies": [faults.empty_reply(), faults.empty_reply()],
    "nothing but a thought": [think("hm")],
    "nothing but blanks": [say("  \n ")],
    "an announcement": [say("I will now write the file.")],
    "a reply cut off by the limit": [reply(text="I am going to", finish="length")],
    "a call cut off by the limit": [reply(calls=call_raw("write", '{"path": "OUT').calls, finish="length")],
    "a text call cut off by the limit": [reply(text='<tool_call>\n{"name": "write", "argu', finish="length")],
    "429": [faults.rate_limited("0")],
    "429 without a time": [faults.rate_limited(None)],
    "500 twice": [faults.server_error(), faults.server_error()],
    "502": [status(502, "bad gateway")],
    "a model that loads": [faults.loading(), faults.loading()],
    "a connection that is refused": [refuse()],
    "a stream that breaks off": [cut(say("I write the file now."), chunks=1)],
    "a stream that breaks off in a call": [cut(WRITE, chunks=2)],
    "an error in the stream": [error_in_stream("slot unavailable")],
    "an error behind half an answer": [error_in_stream("out of memory", say("I write"))],
}

HONEST = {
    "a web page": [faults.html_page()] * 9,
    "a web page as an error": [faults.html_page(502)] * 9,
    "an empty body": [faults.empty_body()] * 9,
    "no JSON in the stream": [faults.json_in_stream()] * 9,
    "half a JSON": [raw([b'{"choices": [{"mess'], content_type="application/json", framing="length")] * 9,
    "a wrong key": [faults.bad_key()] * 9,
    "a model that is not there": [faults.unknown_model()] * 9,
    "500 for ever": [faults.server_error()] * 9,
    "429 for ever": [faults.rate_limited("0")] * 9,
    "empty for ever": [faults.empty_reply()] * 30,
    "announcements for ever": [say("I will now write the file.")] * 30,
    "cut off for ever": [reply(text="and on ", finish="length")] * 30,
    "broken streams for ever": [cut(say("I write the file now."), chunks=1)] * 30,
    "damaged calls for ever": [call_raw("write", "{")] * 40,
    "another tool for ever": [call("scribble", path="x")] * 40,
    "a filter": [reply(text="", finish="content_filter")] * 9,
    "invalid UTF-8 and nothing else": [raw([b"data: \xff\xfe\n\n", b"data: [DONE]\n\n"])] * 9,
}

NOTHING = {
    "a call in a thought": think(f"maybe {JSON}", say("I only thought of it.")),
    "markup in a thought": say(f"<think>\n<tool_call>\n{JSON}\n</tool_call>\n</think>\nI only thought of it."),
    "markup in an unclosed thought": say(f"<think>\n<tool_call>\n{JSON}\n</tool_call>"),
    "an example in a fence": say(f"You would write:\n```\n<tool_call>\n{JSON}\n</tool_call>\n```\nand so on."),
    "an example in backticks": say(f"The form is `<tool_call>{JSON}</tool_call>` here."),
    "a quotation": say(f"He wrote:\n> <tool_call>\n> {JSON}\n> </tool_call>\nand left."),
    "a tool that need not have arguments, in a stream without an end": pieces(
        {"index": 0, "id": "x", "name": "ls"}, finish=None
    ),
    "a fenced call beside one that the server understood": reply(
        text=f"Its form:\n```json\n{JSON}\n```", calls=call("ls").calls
    ),
    "JSON in prose": say(f"The object {JSON} is what one would send."),
    "bare JSON of no tool": say('{"name": "scribble", "arguments": {"path": "OUT.txt"}}'),
    "a whole call at the limit": reply(calls=WRITE.calls, finish="length"),
}

SLOW = {
    "keep-alive comments before the first word": slow(WRITE, first=2.5, keepalive=10),
    "progress before the first word": quirks.prefill_progress(slow(WRITE, first=2.5)),
    "a word now and then": slow(say("I am slow at this, and then I write it."), each=0.4),
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "OUT.txt"


def done(script: Sequence[Behaviour], out: Path, **flags: object) -> None:
    finished = play(script, out.parent, **flags)
    assert (finished.outcome, finished.reason) == ("done", "")
    assert out.read_text() == "ok\n"


@pytest.mark.parametrize("name", sorted(quirks.HARMLESS))
def test_oddities_change_nothing(name, out):
    quirk = quirks.HARMLESS[name]
    done([quirk(think("let me see", WRITE)), quirk(DONE)], out)


@pytest.mark.parametrize("name", TEXTS)
def test_calls_in_text_are_carried_out(name, out):
    done([say(TEXTS[name], chunk=5), DONE], out)


@pytest.mark.parametrize("name", CONSTRAINED)
def test_calls_are_carried_out_in_any_form_when_a_server_ignores_the_one_asked_for(name, out):
    done([call_raw("ls", '{"path": '), say(CONSTRAINED[name], chunk=5), DONE], out)


@pytest.mark.parametrize("name", REPAIRED)
def test_calls_that_only_look_wrong_are_carried_out(name, out):
    done([REPAIRED[name], DONE], out)


@pytest.mark.parametrize("name", AGAIN)
def test_what_goes_wrong_once_is_done_in_the_end(name, out):
    done([*AGAIN[name], WRITE, DONE], out)


@pytest.mark.parametrize("name", faults.OVERFLOWS)
def test_a_prompt_that_does_not_fit_is_sent_again_smaller(name, out):
    done([faults.OVERFLOWS[name](9000, 4096), WRITE, DONE], out)


@pytest.mark.parametrize("name", HONEST)
def test_what_cannot_be_done_is_never_called_done(name, out):
    finished = play(HONEST[name], out.parent)
    assert finished.outcome in ("error", "limit")
    assert finished.reason
    assert not out.exists()


@pytest.mark.parametrize("name", NOTHING)
def test_what_was_not_meant_as_a_call_is_not_run(name, out):
    play([NOTHING[name], say("That is all.")], out.parent)
    assert not out.exists()


@pytest.mark.parametrize("name", SLOW)
def test_who_shows_life_is_waited_for(name, out):
    script = [SLOW[name], DONE] if isinstance(SLOW[name], Reply) and SLOW[name].calls else [WRITE, SLOW[name]]
    done(script, out, llm_timeout=1.5)


def test_a_stall_is_noticed_within_its_limit(out):
    finished = play([hang(say("I am going to stall here for ever."), chunks=2)] * 9, out.parent, llm_timeout=1.0)
    assert finished.outcome == "error"
    assert "1" in finished.reason


def test_there_are_at_least_80_cases():
    groups = (quirks.HARMLESS, TEXTS, CONSTRAINED, REPAIRED, AGAIN, faults.OVERFLOWS, HONEST, NOTHING, SLOW)
    assert sum(map(len, groups)) + 1 >= 80
