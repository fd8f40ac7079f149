"""A person works with the agent in a browser."""

import json

import pytest
from gateway_kit import shared
from web_kit import ask, box, finished, session_of, shot, talk

from lmagent.testing.script import call, say, slow, think


def told(running):
    """What the model was told, call by call."""
    return [json.dumps(request.body) for request in running.model.requests if request.body]


def test_a_first_message_begins_a_session_and_is_answered(screen):
    with shared([say("It is **done**.")]) as running:
        page = screen(running)
        ask(page, "Say that it is done, please")
        finished(page)
        assert page.locator(".said strong").inner_text() == "done"
        assert page.get_by_role("heading", level=1).inner_text() == "Say that it is done, please"
        sessions = page.get_by_role("region", name="Sessions")
        sessions.get_by_text("Say that it is done, please").wait_for()
        assert sessions.get_by_role("searchbox").count() == 1
        assert box(page).input_value() == ""
        page.get_by_role("button", name="New session").click()
        page.get_by_role("heading", name="What shall we work on?").wait_for()


def test_an_approval_shows_what_would_happen_and_runs_what_is_approved(tmp_path, screen):
    with shared([call("write", path="a.txt", content="new line\n"), say("Written.")]) as running:
        page = screen(running)
        ask(page, "write it")
        page.get_by_role("button", name="Approve").wait_for()
        assert page.locator("[data-state=waiting]").inner_text() == "Needs your approval"
        assert "+new line" in page.get_by_role("region", name="What would happen").inner_text()
        assert not (running.workspace / "a.txt").exists()
        shot(page, tmp_path, "approval")
        page.get_by_role("button", name="Approve").click()
        finished(page)
        assert (running.workspace / "a.txt").read_text() == "new line\n"
        assert page.get_by_role("button", name="Approve").count() == 0


def test_a_denial_takes_words_to_the_model_and_nothing_runs(screen):
    with shared([call("write", path="a.txt", content="x\n"), say("Then not.")]) as running:
        page = screen(running)
        ask(page, "write it")
        page.get_by_label("Message to the model").fill("use b.txt instead")
        page.get_by_role("button", name="Deny").click()
        finished(page)
        assert not (running.workspace / "a.txt").exists()
        assert "use b.txt instead" in told(running)[-1]


def test_always_in_this_session_is_asked_once_and_the_keys_answer(screen):
    script = [call("write", path="a.txt", content="1\n"), call("write", path="b.txt", content="2\n"), say("Both.")]
    with shared(script) as running:
        page = screen(running)
        ask(page, "write both")
        page.get_by_role("button", name="Always allow").click()
        finished(page)
        assert (running.workspace / "b.txt").exists()
    with shared([call("write", path="c.txt", content="3\n"), say("Yes.")]) as running:
        page = screen(running)
        ask(page, "write c")
        page.get_by_role("region", name="Approval").focus()
        page.get_by_role("button", name="Approve").click(trial=True)
        page.keyboard.press("a")
        finished(page)
        assert (running.workspace / "c.txt").exists()


def test_a_key_that_is_held_down_answers_one_approval_and_not_the_next(screen):
    script = [call("write", path="a.txt", content="1\n"), call("write", path="b.txt", content="2\n"), say("Both.")]
    with shared(script) as running:
        page = screen(running)
        ask(page, "write both")
        card = page.get_by_role("region", name="Approval")
        card.focus()
        card.get_by_role("button", name="Approve").click(trial=True)
        page.keyboard.down("a")
        card.get_by_text("b.txt").first.wait_for()
        card.focus()
        page.keyboard.down("a")  # again, as it is still held
        card.get_by_role("button", name="Approve").click(trial=True)  # it was not answered: it can be
        page.keyboard.up("a")
        page.keyboard.press("a")
        finished(page)
        assert (running.workspace / "b.txt").exists()


def test_the_keys_answer_the_only_approval_from_anywhere_but_where_one_writes(screen):
    with shared([call("write", path="c.txt", content="3\n"), say("Yes.")]) as running:
        page = screen(running)
        ask(page, "write c")
        hint = page.get_by_text("approves,")
        hint.wait_for(state="attached")
        box(page).focus()
        hint.wait_for(state="hidden")
        page.keyboard.press("a")
        assert box(page).input_value() == "a"
        page.get_by_role("button", name="Approve").click(trial=True)
        box(page).fill("")
        box(page).blur()
        hint.wait_for()
        page.keyboard.press("a")
        finished(page)
        assert (running.workspace / "c.txt").exists()


@pytest.mark.parametrize("answers", ["key", "click"])
def test_the_second_press_of_a_double_one_does_not_answer_the_next_approval(screen, answers):
    script = [call("write", path="a.txt", content="1\n"), call("write", path="b.txt", content="2\n"), say("Both.")]
    with shared(script) as running:
        page = screen(running)
        ask(page, "write both")
        card = page.get_by_role("region", name="Approval")
        approve = card.get_by_role("button", name="Approve")
        card.focus()
        approve.click(trial=True)
        # The next card is answered in the very moment in which it appears.
        page.evaluate(
            """(answers) => new MutationObserver((_, watch) => {
              const card = document.querySelector(".ask");
              if (!card?.textContent.includes("b.txt")) return;
              watch.disconnect();
              const key = new KeyboardEvent("keydown", { key: "a", bubbles: true });
              if (answers === "key") document.body.dispatchEvent(key);
              else [...card.querySelectorAll("button")].find((it) => it.textContent.includes("Approve")).click();
            }).observe(document.body, { childList: true, subtree: true, characterData: true })""",
            answers,
        )
        page.keyboard.press("a")
        card.get_by_text("b.txt").first.wait_for()
        approve.click(trial=True)  # it was not answered: it can be
        assert not (running.workspace / "b.txt").exists()
        approve.click()
        finished(page)
        assert (running.workspace / "b.txt").exists()


def test_a_call_is_a_line_that_opens_to_its_arguments_result_and_changes(screen):
    script = [call("write", path="a.txt", content="one\ntwo\n"), call("read", path="a.txt"), say("Read.")]
    with shared(script, options=["--permission", "auto"]) as running:
        page = screen(running)
        ask(page, "write and read")
        finished(page)
        line = page.get_by_role("button", name="write a.txt")
        assert "+2" in line.inner_text()
        assert line.get_attribute("aria-expanded") == "false"
        line.click()
        assert "+one" in page.get_by_role("region", name="Changes").inner_text()
        page.get_by_role("group", name="Code, json").get_by_text("a.txt").first.wait_for()
        page.get_by_role("button", name="read a.txt").click()
        assert "two" in page.get_by_role("region", name="Result").nth(1).inner_text()


def test_thoughts_are_folded_away_until_they_are_wanted(screen):
    with shared([think("first this, then that", say("Answer."))]) as running:
        page = screen(running)
        ask(page, "think")
        finished(page)
        page.get_by_role("button", name="Thought").click()
        assert page.locator(".thought-text").inner_text() == "first this, then that"


def test_while_it_works_enter_steers_and_another_button_queues(tmp_path, screen):
    script = [
        call("bash", command="until [ -e go ]; do sleep 0.05; done"),
        say("Steered."),
        say("And the queued one."),
    ]
    with shared(script, options=["--permission", "auto"]) as running:
        page = screen(running)
        ask(page, "begin")
        page.get_by_role("button", name="Stop").wait_for()
        box(page).fill("then also this")
        page.get_by_role("button", name="Queue").click()
        page.get_by_text("Queued – sent when this turn ends").wait_for()
        box(page).fill("be brief")
        box(page).press("Enter")
        page.get_by_text("Will be delivered after the current step").wait_for()
        shot(page, tmp_path, "waiting")
        (running.workspace / "go").touch()
        page.get_by_text("And the queued one.").wait_for()
        finished(page)
        said = [event for event in running.logs() if event["type"] == "input.received"]
        assert {event["delivery"] for event in said[1:]} == {"queue", "steer"}
        assert "be brief" in told(running)[1]


def test_stop_stops(screen):
    with shared([slow(say("never to be heard in full"), first=60.0)]) as running:
        page = screen(running)
        ask(page, "go on for long")
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("Stopped").first.wait_for()
        page.get_by_role("button", name="Stop").wait_for(state="detached")


def test_title_and_permissions_can_be_changed(screen):
    with shared([say("ok")]) as running:
        page = screen(running)
        ask(page, "hello")
        finished(page)
        page.get_by_title("Rename").click()
        page.get_by_role("textbox", name="Title").fill("My own name")
        page.get_by_role("button", name="Rename", exact=True).click()
        page.get_by_role("heading", name="My own name").wait_for()
        page.get_by_role("button", name="Permissions: normal").click()
        page.get_by_role("button", name="auto").click()
        page.get_by_role("button", name="Permissions: auto").wait_for()
        assert running.ask("GET", f"/api/sessions/{session_of(page)}").json["title"] == "My own name"


def test_a_plan_is_edited_and_approved(tmp_path, screen):
    steps = [
        {"id": id, "description": text, "verification": "", "risk": "", "dependencies": []}
        for id, text in (("1", "read the file"), ("2", "write the report"))
    ]
    plan = say(json.dumps({"title": "The report", "goal": "a report", "risk_areas": [], "steps": steps}))
    with shared([plan, say("As planned.")]) as running:
        page = screen(running)
        ask(page, "/plan write a report")
        card = page.get_by_role("region", name="Plan")
        card.get_by_text("write the report").wait_for()
        assert '"steps"' not in talk(page)
        shot(page, tmp_path, "plan")
        card.get_by_role("button", name="Edit").click()
        card.get_by_label("Step 2", exact=True).fill("write a short report")
        card.get_by_role("button", name="Approve as edited").click()
        card.wait_for(state="detached")
        [decided] = [event for event in running.logs() if event["type"] == "plan.decided"]
        assert decided["plan"]["steps"][1]["description"] == "write a short report"


def test_what_goes_wrong_is_said_with_what_to_do(tmp_path, screen):
    with shared([], options=["--base-url", "http://127.0.0.1:9"]) as running:
        page = screen(running)
        page.get_by_text("No model server answers.").wait_for()
        shot(page, tmp_path, "no-model")
        ask(page, "hello")
        page.locator(".notice.error").first.wait_for()
        assert talk(page).count("Error:") == 1


def test_a_stopped_answer_keeps_its_words_and_a_notice_says_stopped_once(screen):
    with shared([slow(say("```\n" + "line of code\n" * 4000), each=0.02), say("Next.")]) as running:
        page = screen(running)
        ask(page, "write code")
        page.get_by_text("line of code").first.wait_for()
        page.get_by_role("button", name="Stop").click()
        page.locator(".notice").get_by_text("Stopped", exact=True).wait_for()
        assert "interrupted" not in talk(page)
        session = session_of(page)
        history = running.ask("GET", f"/api/sessions/{session}/history").json["messages"]
        assert "line of code" in history[-1]["content"]
        assert "interrupted" not in history[-1]["content"]
        exported = running.ask("GET", f"/api/sessions/{session}/export").body.decode()
        assert "Stopped" in exported
        assert "interrupted" not in exported
        ask(page, "and now?")
        page.get_by_text("Next.", exact=True).wait_for()
        assert "line of code\\n[interrupted here]" in told(running)[-1]  # the model learns why its reply is short


def test_what_is_asked_goes_with_the_turn_that_is_stopped(screen):
    with shared([call("shell", command="touch a"), say("Next.")]) as running:
        page = screen(running)
        ask(page, "make a")
        page.get_by_role("button", name="Approve").wait_for()
        page.get_by_role("button", name="Stop").click()
        page.locator(".notice").get_by_text("Stopped", exact=True).wait_for()
        page.get_by_role("button", name="Approve").wait_for(state="detached")
        ask(page, "and now?")
        page.get_by_text("Next.", exact=True).wait_for()
        finished(page)
        assert not (running.workspace / "a").exists()
