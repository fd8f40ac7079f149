import pytest

from lmagent.engine.endings import answer_of, classify

DONE = [
    "All files are summarised in SUMMARY.md.",
    "I have created the file. Let me know if you need anything else.",
    "Done. Would you like me to also add tests?",
    "TASK_COMPLETE",
    "The function returns 42.",
    "I read both files. They define a to-do list.",
    "Fixed the bug in `parse`.\n\n```python\nx = 1\n```",
    "If you run it again, I will use the cache.",
    "Remember that I will read the file as UTF-8.",
]
NARRATION = [
    "I will now read the file…",
    "I'll start by listing the files.",
    "Let me check the configuration.",
    "Great question.\n\nFirst, I'll look at the tests.",
    "Now I will write the summary to SUMMARY.md.",
    "The file is missing.\nLet me create it:",
    "I’m going to open README.md.",
]
QUESTIONS = [
    "There are two configs. Which one do you mean?",
    "Should the old file be deleted?",
]


@pytest.mark.parametrize("text", DONE)
def test_an_answer_is_done(text):
    assert classify(text, acted=True).kind == "done"


@pytest.mark.parametrize("text", NARRATION)
def test_announcing_work_is_not_an_end(text):
    assert classify(text, acted=True).kind == "narration"


@pytest.mark.parametrize("text", QUESTIONS)
def test_a_question_waits_for_the_user(text):
    ending = classify(text, acted=True)
    assert ending.kind == "question"
    assert ending.reason.endswith("?")


def test_a_short_announcement_before_anything_was_done_is_narration_wherever_it_stands():
    text = "I'll check the files for you. One moment please."
    assert classify(text, acted=False).kind == "narration"


def test_a_block_gives_its_reason():
    ending = classify("I tried.\nBLOCKED: no permission\nReason: read-only", acted=True)
    assert ending.kind == "blocked"
    assert ending.reason == "no permission\nReason: read-only"


@pytest.mark.parametrize("when", ["2026-03-01T09:00:00Z: the build is running", "+30m: the build", "in 2 hours"])
def test_a_wait_gives_what_stands_behind_it(when):
    ending = classify(f"I started it.\n\n**WAIT:** {when}", acted=True)
    assert (ending.kind, ending.when) == ("waiting", when)


def test_a_word_of_warning_is_no_wait():
    assert classify("WAIT: there is one more thing to know. It is slow.", acted=True).kind == "done"


def test_a_wait_in_the_middle_of_a_line_is_neither_a_wait_for_a_time_nor_an_answer():
    ending = classify("The build runs. WAIT: +5s: the build", acted=True)
    assert (ending.kind, ending.when) == ("waiting", "")
    assert classify("Write `WAIT: +5s: the build` on a line of its own.", acted=True).kind == "done"


@pytest.mark.parametrize(
    "text",
    [
        "Ich werde jetzt die Dateien lesen.",
        "Zuerst lass mich die Dateien ansehen.",
        "Je vais lire les fichiers.",
        "Ahora voy a leer los archivos.",
        "现在我将读取文件。",
        "Die Datei wird gelesen:",
        "The plan:\n- [ ] read the files\n- [ ] write the summary",
    ],
)
def test_an_announcement_is_known_by_its_form_while_nothing_was_done(text):
    assert classify(text, acted=False).kind == "narration"


@pytest.mark.parametrize(
    "text",
    ["Alle Dateien sind gelesen. Die Summe ist 12.", "Ich werde oft so genannt.", "Je vais bien.", "我来自中国。"],
)
def test_an_answer_in_another_language_is_an_answer(text):
    assert classify(text, acted=False).kind == "done"


def test_a_list_of_what_is_left_may_end_a_turn_that_did_something():
    assert classify("Done so far.\n- [x] read\n- [ ] publish it, which is yours", acted=True).kind == "done"


def test_the_completion_marker_is_not_part_of_the_answer():
    assert answer_of("All good.\nTASK_COMPLETE") == "All good."


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SUMMARY.md is written. First I read every file, then I wrote one line for each.", "done"),
        ("All 12 tests pass. I should note that I did not run the slow tests.", "done"),
        ("The server is fixed. I will be happy to add tests.", "done"),
        ("Three columns:\n- TODO: 4 tickets\n- BLOCKED: 2 tickets\n- DONE: 9 tickets", "done"),
        ("The protocol says:\n```\nBLOCKED: client is refused\n```\nThat is all.", "done"),
        ("I will end with TASK_COMPLETE once it is done. Now let me read the file.", "narration"),
        ("The task is not TASK_COMPLETE yet; I still need to write the file.", "narration"),
        ("I'll do that now.", "narration"),
        ("Okay, let me handle it.", "narration"),
        ("Reading a.txt now.", "narration"),
        ("The file is written.\nTASK_COMPLETE", "done"),
    ],
)
def test_what_only_looks_like_a_marker_or_an_announcement_is_told_apart(text, kind):
    assert classify(text, acted=True).kind == kind
