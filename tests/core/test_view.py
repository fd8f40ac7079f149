"""The fold from events to what a person sees."""

from functools import reduce as fold

import msgspec

from lmagent.core import events as ev
from lmagent.core.messages import STOPPED, Message, Text, Thinking, ToolCall, assistant, user
from lmagent.core.model import Usage
from lmagent.core.view import (
    BranchBlock,
    NoticeBlock,
    PageCard,
    TextBlock,
    ThinkingBlock,
    ToolBlock,
    UserBlock,
    View,
    reduce,
)

ASKED = ev.InputReceived(id="i1", message=user("read a.py please"), delivery="submit")
DELIVERED = ev.MessageAdded(message=user("read a.py please"), origin="input", input="i1")
CALLING = ev.MessageAdded(
    message=Message("assistant", (Thinking("hm"), Text("Reading."), ToolCall("c1", "read", "{}"))), origin="model"
)
STARTED = ev.ToolStarted(call_id="c1", tool="read", effect="read", summary="read a.py")
FINISHED = ev.ToolFinished(call_id="c1", tool="read", status="ok", content="x = 1", data={"diff": "+x"}, duration=0.2)
STEP = ev.StepFinished(
    step=1, usage=Usage(1000, 50, 900), finish_reason="stop", first_token_s=1.0, total_s=2.0, model="m"
)


def see(*events: ev.Event) -> View:
    return fold(reduce, events, View())


def test_a_turn_is_seen_from_its_input_to_its_end():
    view = see(ASKED, ev.TurnStarted(turn=1), DELIVERED, CALLING, STARTED, FINISHED, ev.TurnFinished(outcome="done"))
    assert view.blocks == (
        UserBlock("i1", "read a.py please", "submit"),
        ThinkingBlock("hm"),
        TextBlock("Reading."),
        ToolBlock("c1", "read", "read a.py", "ok", "x = 1", "+x", 0.2),
    )
    assert (view.state, view.outcome, view.title) == ("idle", "done", "read a.py please")


def test_a_call_by_use_tool_has_the_name_of_its_tool_and_a_refused_one_says_what_it_was():
    call = ToolCall("c1", "use_tool", '{"name": "web_fetch", "arguments": {"url": "http://192.168.1.1/"}}')
    asked = ev.MessageAdded(message=Message("assistant", (call,)), origin="model")
    refused = ev.ToolFinished(
        call_id="c1", tool="web_fetch", status="error", content="no", data={"summary": "web_fetch http://192.168.1.1/"}
    )
    assert [block.summary for block in see(asked).blocks if isinstance(block, ToolBlock)] == ["web_fetch"]
    (block,) = see(asked, refused).blocks
    assert isinstance(block, ToolBlock)
    assert (block.summary, block.status) == ("web_fetch http://192.168.1.1/", "error")


def test_a_page_that_was_read_is_a_card_unless_its_address_is_none():
    def read(page: object) -> ToolBlock:
        finished = msgspec.structs.replace(FINISHED, data={"page": page})
        (block,) = [one for one in see(CALLING, STARTED, finished).blocks if isinstance(one, ToolBlock)]
        return block

    page = {"url": "https://docs.python.org/3/", "title": "Python"}
    assert read(page).page == PageCard("https://docs.python.org/3/", "Python")
    for odd in (None, "x", {}, {**page, "url": "javascript:alert(1)"}, {**page, "title": 3}):
        assert read(odd).page is None


def test_live_text_stands_in_the_draft_until_the_message_replaces_it():
    live = see(ev.TurnStarted(turn=1), ev.TextDelta(text="Rea"), ev.TextDelta(text="ding."))
    assert (live.draft, live.blocks) == ("Reading.", ())
    assert (reduce(live, CALLING).draft, reduce(live, CALLING).blocks[1]) == ("", TextBlock("Reading."))


def test_a_replay_without_live_events_ends_with_the_same_view():
    durable = (ASKED, ev.TurnStarted(turn=1), DELIVERED, CALLING, STARTED, FINISHED)
    live = (
        ASKED,
        ev.TurnStarted(turn=1),
        DELIVERED,
        ev.ThinkingDelta(text="hm"),
        ev.TextDelta(text="Reading."),
        CALLING,
    )
    assert see(*durable) == see(*live, STARTED, ev.ToolOutput(call_id="c1", text="x"), FINISHED)


def test_a_retry_takes_back_what_was_shown_of_the_broken_reply():
    view = see(ev.TextDelta(text="half a"), ev.RetryScheduled(reason="cut", attempt=1, delay=1.0))
    assert (view.draft, view.state) == ("", "retrying")


def test_an_approval_waits_until_somebody_answers_it():
    asked = ev.ApprovalRequested(id="a1", call_id="c1", tool="write", summary="write b", grant="write")
    waiting = see(asked)
    assert (waiting.state, waiting.approvals[0].grant) == ("waiting", "write")
    answered = reduce(waiting, ev.ApprovalResolved(approval="a1", call_id="c1", approved=True))
    assert (answered.state, answered.approvals) == ("running", ())


def test_nothing_is_asked_any_more_at_the_end_of_a_turn():
    asked = ev.ApprovalRequested(id="a1", call_id="c1", tool="write", summary="write b")
    ended = see(ev.TurnStarted(turn=1), asked, ev.TurnFinished(outcome="interrupted"))
    assert (ended.state, ended.approvals) == ("idle", ())


def test_an_input_waits_until_it_is_delivered_or_withdrawn():
    said = UserBlock("i1", "read a.py please", "submit")
    assert (see(ASKED).blocks, see(ASKED).waiting) == ((), (said,))
    assert (see(ASKED, DELIVERED).blocks, see(ASKED, DELIVERED).waiting) == ((said,), ())
    assert see(ASKED, ev.InputWithdrawn(input="i1")) == View(title="read a.py please")


def test_a_message_sent_while_an_answer_is_written_follows_the_answer():
    later = ev.InputReceived(id="i2", message=user("and b.py"), delivery="queue")
    delivered = ev.MessageAdded(message=user("and b.py"), origin="input", input="i2")
    view = see(ASKED, DELIVERED, later, CALLING, delivered)
    assert [type(block) for block in view.blocks] == [UserBlock, ThinkingBlock, TextBlock, ToolBlock, UserBlock]


def test_what_waited_in_the_session_that_was_copied_does_not_wait_in_the_copy():
    assert see(ASKED, ev.SessionForked(session="s2", parent="s1", at_seq=1)).waiting == ()


def test_messages_and_answers_know_their_turn_and_a_copy_where_it_left_its_origin():
    delivered = ev.MessageAdded(message=user("read a.py please"), origin="input", input="i1", turn=3)
    answer = ev.MessageAdded(message=assistant("Read."), origin="model", turn=3)
    view = see(ASKED, delivered, answer, ev.SessionForked(session="s2", parent="s1", at_seq=4))
    assert view.blocks == (
        UserBlock("i1", "read a.py please", "submit", turn=3),
        TextBlock("Read.", 3),
        BranchBlock("s1"),
    )


def test_a_message_whose_arrival_is_not_in_the_log_is_shown_all_the_same():
    assert see(DELIVERED).blocks == (UserBlock("i1", "read a.py please", "submit"),)
    assert see(DELIVERED).title == "read a.py please"


def test_an_end_that_is_not_done_is_said():
    view = see(ev.TurnFinished(outcome="limit", cause="iterations", reason="the limit of 5 steps is reached"))
    assert view.blocks == (NoticeBlock("warning", "Limit: the limit of 5 steps is reached"),)


def test_a_reply_that_the_user_stopped_keeps_its_words_and_the_stop_is_a_notice():
    partial = ev.MessageAdded(message=assistant(f"```\nhalf a line{STOPPED}"), origin="recovery", turn=1)
    view = see(partial, ev.TurnFinished(outcome="interrupted", cause="interrupt", reason=ev.BY_USER))
    assert view.blocks == (TextBlock("```\nhalf a line", 1), NoticeBlock("info", "Stopped"))


def test_a_turn_that_ended_with_the_program_says_why_it_stopped():
    view = see(ev.TurnFinished(outcome="interrupted", cause="crash", reason="the program ended"))
    assert view.blocks == (NoticeBlock("warning", "Stopped: the program ended"),)


def test_a_model_that_writes_the_mark_itself_is_shown_as_it_wrote_it():
    view = see(ev.MessageAdded(message=assistant(f"Text{STOPPED}"), origin="model", turn=1))
    assert view.blocks == (TextBlock(f"Text{STOPPED}", 1),)


def test_usage_adds_up_and_knows_its_speed():
    view = see(STEP, STEP)
    totals = view.totals
    assert (totals.steps, totals.prompt, totals.cached, totals.context) == (2, 2000, 1800, 1050)
    assert view.pace.write_per_s == 50.0


def test_mode_model_title_and_cuts_are_shown():
    view = see(
        ev.SessionCreated(session="s", workspace="/w", agent="a", system="", tools=(), model="m"),
        ev.ModeChanged(mode="auto"),
        ev.ModelChanged(model="other"),
        ev.SessionRenamed(title="mine"),
        ev.CompactionDone(
            messages=(), trigger="window", summary="", before_tokens=9000, after_tokens=2000, through_seq=4
        ),
        ev.Notice(level="warning", code="x", text="careful", fix="do this"),
    )
    assert (view.session, view.mode, view.model, view.title) == ("s", "auto", "other", "mine")
    assert [block.text for block in view.blocks] == [
        "Conversation shortened: 9,000 → 2,000 tokens",
        "careful\ndo this",
    ]
