from functools import partial

from lmagent.core import events as ev
from lmagent.core.messages import STOPPED, Message, Text, Thinking, assistant
from lmagent.core.model import Usage
from lmagent.core.view import Pace, Pending, Totals, View
from lmagent.terminal.render import MAX_DIFF_LINES, Renderer
from lmagent.terminal.rich_style import RichStyle
from lmagent.terminal.status import status_line
from lmagent.terminal.style import PlainStyle


def shown(*events: ev.Event, style=None) -> str:
    printed: list[str] = []
    renderer = Renderer(style or PlainStyle(), printed.append)
    for event in events:
        renderer(event)
    return "".join(printed)


def test_streamed_text_is_printed_once_although_the_whole_message_follows():
    live = [ev.TextDelta(text="One.\n\nTw"), ev.TextDelta(text="o.")]
    assert shown(*live, ev.MessageAdded(message=assistant("One.\n\nTwo."), origin="model")) == "One.\n\nTwo.\n"


def test_a_message_that_was_not_streamed_is_printed_whole():
    assert shown(ev.MessageAdded(message=assistant("One.\n\nTwo."), origin="model")) == "One.\n\nTwo.\n"


def test_a_stopped_reply_is_printed_as_far_as_it_came_and_the_stop_is_a_line_of_its_own():
    partial = ev.MessageAdded(message=assistant(f"Half of it{STOPPED}"), origin="recovery", turn=1)
    stopped = ev.TurnFinished(outcome="interrupted", cause="interrupt", reason=ev.BY_USER)
    assert shown(ev.TextDelta(text="Half of it"), partial, stopped) == "Half of it\nStopped\n"


def test_a_retry_takes_back_the_unfinished_tail():
    text = shown(
        ev.TextDelta(text="half"),
        ev.RetryScheduled(reason="cut", attempt=1, delay=1.0),
        ev.MessageAdded(message=assistant("whole"), origin="model"),
    )
    assert "half" not in text


def test_a_call_is_one_line_with_its_end_and_a_diff_behind_it():
    started = ev.ToolStarted(call_id="c", tool="edit", effect="write", summary="edit a.py (+1 −1)")
    diff = "@@ -1 +1 @@\n-old\n+new"
    finished = ev.ToolFinished(
        call_id="c", tool="edit", status="ok", content="Edited.", data={"diff": diff}, duration=0.24
    )
    assert shown(started, finished) == "✓ edit a.py (+1 −1) · 0.2 s\n  @@ -1 +1 @@\n  -old\n  +new\n"


def test_a_diff_that_was_shown_with_the_question_is_not_shown_again():
    asked = ev.ApprovalRequested(call_id="c", tool="write", summary="write b", preview="+new", reason="asks")
    finished = ev.ToolFinished(call_id="c", tool="write", status="ok", content="", data={"diff": "+new"})
    assert shown(asked, finished).count("+new") == 1


def test_a_long_diff_is_cut_and_counted():
    finished = ev.ToolFinished(
        call_id="c", tool="write", status="ok", content="", data={"diff": "+line\n" * (MAX_DIFF_LINES + 7)}
    )
    assert "… 7 more lines" in shown(finished)


def test_a_failed_call_says_why_on_its_line():
    finished = ev.ToolFinished(call_id="c", tool="read", status="error", content="There is no x.\nUse ls.")
    assert shown(finished) == "✗ read: There is no x. Use ls.\n"


def test_a_thought_is_one_quiet_line():
    message = Message("assistant", (Thinking("first this\nthen that " * 30), Text("Answer.")))
    lines = shown(ev.MessageAdded(message=message, origin="model")).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("… thought: first this then that")


def test_terminal_escapes_of_the_model_and_of_tools_are_never_printed():
    evil = "\x1b]0;title\x07\x1b[2Jtext\x9b31m"
    text = shown(
        ev.MessageAdded(message=assistant(evil), origin="model"),
        ev.ToolFinished(call_id="c", tool="read", status="error", content=evil),
        ev.Notice(level="warning", code="x", text=evil),
    )
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert text.count("text") == 3


def test_an_end_that_is_not_done_is_said_with_what_to_do():
    ended = ev.TurnFinished(outcome="error", cause="Unreachable", reason="nothing listens", fix="start the server")
    assert shown(ended) == "error: nothing listens\n  → start the server\n"


def test_the_reason_that_the_answer_gives_itself_is_not_repeated():
    answer = ev.MessageAdded(message=assistant("BLOCKED: that is beyond me."), origin="model")
    ended = ev.TurnFinished(
        outcome="blocked", cause="blocked", reason="that is beyond me.", answer="BLOCKED: that is beyond me."
    )
    text = shown(answer, ended)
    assert text.count("beyond me") == 1
    assert text.count("BLOCKED") == 1
    assert "blocked" not in text


def test_an_interruption_is_said_once():
    ended = ev.TurnFinished(outcome="interrupted", cause="interrupt", reason="interrupted by the user")
    assert shown(ended) == "Stopped\n"


def test_a_denied_call_is_named_with_what_denied_it_and_without_words_for_the_model():
    for_model = 'The user denied this call. It was not run. They say: "no"'
    data = {"code": "denied", "summary": "shell rm x", "why": "by the user"}
    by_user = ev.ToolFinished(call_id="c", tool="shell", status="denied", content=for_model, data=data)
    assert shown(by_user) == "✗ shell rm x: denied\n"
    data |= {"why": "mode normal asks before running, and no user was there to allow it"}
    unasked = ev.ToolFinished(call_id="c", tool="shell", status="denied", content="Denied: …", data=data)
    assert shown(unasked) == f"✗ shell rm x: denied: {data['why']}\n"
    ended = ev.TurnFinished(outcome="done", cause="permission", answer="Done.", terminal="allow it")
    assert shown(ended) == "denied: a call needed an approval, and no user was there to give it\n  → allow it\n"


def test_a_reason_that_the_answer_does_not_give_is_shown():
    ended = ev.TurnFinished(outcome="blocked", cause="plan", reason="a plan waits for you", answer="I made a plan.")
    assert "a plan waits for you" in shown(ended)


def test_markdown_is_laid_out_for_the_width_that_the_terminal_has_now():
    text = shown(ev.MessageAdded(message=assistant("word " * 30), origin="model"), style=RichStyle(lambda: 40))
    assert max(map(len, text.splitlines())) <= 40


def test_the_status_line_begins_with_the_model_and_what_changes():
    view = View(
        model="m", mode="auto", state="thinking", totals=Totals(2, 2000, 100, 1500, 8192), pace=Pace(write_per_s=41.5)
    )
    line = status_line(view, 32768, 1.3, "", "bubblewrap")
    assert line == (
        "m · ⠋ thinking 1 s · 8,192/32,768 tokens (25%) · cache 75% · 41.5 tokens/s · mode auto · sandbox bubblewrap"
    )


def test_the_status_line_says_who_is_waited_for():
    pending = Pending("a", "c", "write", "write b", "", "", "write")
    assert status_line(View(approvals=(pending,)), 1000, 0, "", "off").startswith("waiting for you")
    reading = View(progress=0.4, seconds_left=12.4)
    assert status_line(reading, 1000, 0, "", "off").startswith("⠋ reading the prompt 40% (about 12 s left)")
    assert status_line(View(progress=0.4), 1000, 0, "", "off").startswith("⠋ reading the prompt 40% ·")
    assert status_line(View(), 1000, 0, "read a.py", "off").startswith("⠋ read a.py")


def test_the_status_line_moves_while_something_goes_on_and_only_then():
    frames = {status_line(View(state="thinking"), 1000, tenth / 10, "", "off")[0] for tenth in range(30)}
    assert len(frames) > 5
    assert status_line(View(model="m"), 1000, 3, "", "off").startswith("m · idle")


def test_a_command_that_failed_says_how_it_ended():
    def ended(reason: str, code: int) -> str:
        data = {"reason": reason, "exit_code": code}
        return shown(ev.ToolFinished(call_id="c", tool="shell", status="ok", content="", data=data))

    assert ended("exit", 2) == "✗ shell · exit 2\n"
    assert ended("timeout", 137) == "✗ shell · timed out\n"
    assert ended("exit", 0) == "✓ shell\n"


def test_the_status_line_says_why_it_takes_long():
    def said(elapsed: float, **view: object) -> str:
        return status_line(View(state="thinking", **view), 1000, elapsed, "", "off")

    slow = Pace(read_per_s=100.0, fresh=3000)
    assert "reading 3,000 tokens 12 s (about 18 s left)" in said(12, pace=slow)
    assert "reading 3,000 tokens 40 s (about 0 s left)" in said(40, pace=slow)
    why = "(the model loads or reads the prompt)"
    assert f"waiting for the first word 91 s {why}" in said(91, pace=slow)
    assert f"waiting for the first word 12 s {why}" in said(12, totals=Totals(steps=3))
    assert "thinking 1 s" in said(1)
    assert "thinking 12 s" in said(12, thinking="hm", pace=slow)
    assert "writing 3 s" in status_line(View(state="running", draft="Well"), 1000, 3, "", "off")
    assert "9,000 tokens were read again" in said(1, pace=Pace(reread=9000))


def finished_command(content: str, *, notes: tuple[str, ...] = (), code: int = 0) -> ev.ToolFinished:
    data = {"reason": "exit", "exit_code": code, "notes": list(notes)}
    return ev.ToolFinished(call_id="c", tool="shell", status="ok", content=content, data=data)


def test_the_last_lines_that_a_command_printed_are_below_its_call_and_the_others_are_counted():
    numbers = "\n".join(map(str, range(1, 501)))
    lines = shown(finished_command(numbers)).splitlines()
    assert lines[:2] == ["✓ shell", "  … +492 lines"]
    assert lines[2:] == [f"  {number}" for number in range(493, 501)]


def test_what_was_written_for_the_model_is_not_shown_as_output():
    text = shown(finished_command("[1, 2]\n[exit code 3]", notes=("[exit code 3]",), code=3))
    assert text == "✗ shell · exit 3\n  [1, 2]\n"
    assert shown(finished_command("(no output)")) == "✓ shell\n"
    assert shown(ev.ToolFinished(call_id="c", tool="read", status="ok", content="text of a file")) == "✓ read\n"


def test_the_exit_code_of_a_command_that_failed_is_red():
    text = shown(finished_command("no", code=1), style=RichStyle(lambda: 40))
    assert "\x1b[31m✗ shell · exit 1\x1b[0m" in text


def test_a_long_line_of_output_takes_one_row_and_a_request_prints_all_of_it():
    printed: list[str] = []
    renderer = Renderer(RichStyle(lambda: 30), printed.append)
    renderer(finished_command("字" * 40 + "end"))
    assert "字…" in "".join(printed)
    assert "end" not in "".join(printed)
    renderer.whole_output()
    assert "end" in "".join(printed)


def test_a_long_output_says_what_is_left_out_and_where_all_of_it_is():
    printed: list[str] = []
    renderer = Renderer(PlainStyle(), printed.append)
    content = 'first\n[… lines 2-9 of 10 left out; read on with read_artifact(id="ab", offset=2) …]\nlast'
    event = ev.ToolFinished(
        call_id="c", tool="shell", status="ok", content=content, artifact="abcd", data={"exit_code": 0, "notes": []}
    )
    renderer(event)
    renderer.whole_output("blobs")
    text = "".join(printed)
    assert "[… lines 2-9 of 10 left out …]" in text
    assert "all of it: blobs/abcd\n" in text
    assert "read_artifact" not in text


def test_what_a_command_prints_is_seen_while_it_runs():
    renderer = Renderer(PlainStyle(), lambda _: None)
    renderer(ev.ToolStarted(call_id="c", tool="shell", effect="exec", summary="shell make"))
    for piece in ("one\ntw", "o\nthree\n", "four\nfive\x1b[2J\n"):
        renderer(ev.ToolOutput(call_id="c", text=piece))
    assert renderer.live_lines() == ["• shell make", "  two", "  three", "  four", "  five"]
    renderer(finished_command("one"))
    assert renderer.live_lines() == []


def test_a_turn_ends_with_its_time_and_its_tokens():
    def usage(prompt: int, answer: int, cached: int) -> ev.StepFinished:
        counts = Usage(prompt_tokens=prompt, completion_tokens=answer, cached_tokens=cached)
        return ev.StepFinished(step=1, usage=counts, finish_reason="stop", first_token_s=1, total_s=2)

    ended = ev.TurnFinished(outcome="done", ts=112.3)
    turn = (ev.TurnStarted(ts=100.0), usage(1000, 100, 980), usage(2402, 110, 2354), ended)
    assert shown(*turn) == "12 s · 3,402 tokens in (98% cached) · 210 out\n"
    assert shown(ev.TurnStarted(ts=100.0), usage(0, 0, 0), ended) == "12 s\n"
    assert shown(ev.TurnStarted(ts=1.0), ev.TurnFinished(outcome="done", ts=126.0)) == "2 min 5 s\n"
    assert shown(*turn, ended) == shown(*turn)  # a turn that is only shown again, of a resumed session


def test_a_call_that_is_made_again_at_once_names_no_time():
    again = partial(ev.RetryScheduled, reason="nothing listens", attempt=1)
    assert shown(again(delay=0.3)) == "nothing listens; trying again\n"
    assert shown(again(delay=3.0)) == "nothing listens; trying again in 3 s\n"
