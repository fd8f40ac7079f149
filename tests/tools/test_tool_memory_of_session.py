"""read_artifact and recall: what a session can look up in its own record."""

from pathlib import Path

import anyio
import pytest

from lmagent.core.errors import StoreError, ToolError
from lmagent.core.events import MessageAdded, ToolFinished, ToolStarted
from lmagent.core.messages import assistant, user
from lmagent.core.tool import ToolContext
from lmagent.tools.recall import ReadArtifact, Recall, page, read_artifact_tool, recall_tool

CONTEXT = ToolContext("s", "c", Path("/"), {}, lambda text: None)
TEXT = "".join(f"line {number}\n" for number in range(1, 2001))


def get_blob(session: str, handle: str) -> bytes:
    if handle != "abcdef123456":
        raise StoreError(f"there is no artifact {handle}")
    return TEXT.encode()


def read(**arguments) -> str:
    return anyio.run(read_artifact_tool(get_blob).run, ReadArtifact(**arguments), CONTEXT).content


def test_the_pages_of_an_artifact_make_up_the_whole():
    offset, whole = 1, ""
    while offset:
        head, _, body = read(id="artifact:abcdef123456", offset=offset).partition("\n")
        whole += f"{body}\n"
        offset = int(head.rsplit("=", 1)[1].rstrip("]")) if "offset=" in head else 0
    assert whole == TEXT


def test_a_page_stays_within_the_room_that_there_is():
    output = anyio.run(read_artifact_tool(get_blob).run, ReadArtifact("abcdef123456"), CONTEXT)
    assert output.fit is not None
    for room in (300, 1000, 8000):
        head, _, body = f"{output.fit(room).content}\n".partition("\n")
        assert room - 120 < len(head) + len(body) < room
        assert head.startswith(f"[lines 1-{body.count(chr(10))} of 2000; continue with offset=")
    assert anyio.run(read_artifact_tool(get_blob).run, ReadArtifact("abcdef123456", 5), CONTEXT).content.startswith(
        "[lines 5-2000 of 2000]\nline 5\n"
    )


def test_lines_end_at_a_line_feed_and_nowhere_else():
    assert page("a\x0cb\u2028c\rd\ne", 2, 1000) == "[lines 2-2 of 2]\ne"


def test_an_unknown_artifact_is_an_error_for_the_model():
    with pytest.raises(ToolError, match="There is no artifact 'nope'"):
        read(id="nope")


def test_an_offset_behind_the_end_says_where_the_end_is():
    with pytest.raises(ToolError, match="it has 2,000 lines"):
        read(id="abcdef123456", offset=5000)


def test_a_line_longer_than_a_page_is_cut_with_a_note():
    assert "line cut: 20000 characters" in page("x" * 20000, 1, 7000)


EVENTS = (
    MessageAdded(seq=1, message=user("The codeword is apricot."), origin="input"),
    MessageAdded(seq=2, message=user("<date>apricot</date>"), origin="note"),
    MessageAdded(seq=3, message=assistant("I will remember the apricot."), origin="model"),
    ToolFinished(seq=4, call_id="c", tool="read", status="ok", content="bananas " * 500 + "needle here"),
    ToolFinished(seq=5, call_id="c", tool="recall", status="ok", content="codeword apricot needle"),
)


def recall(query: str) -> str:
    return anyio.run(recall_tool(lambda session: EVENTS).run, Recall(query), CONTEXT).content


def test_recall_finds_what_was_said_with_its_place_in_the_record():
    assert recall("codeword?").startswith("[#1 user]\nThe codeword is apricot.")


def test_recall_prefers_what_holds_more_of_the_words_and_leaves_notes_and_itself_out():
    found = recall("codeword apricot")
    assert "#3 assistant" in found
    assert "#2" not in found
    assert "#5" not in found


def test_recall_shows_the_place_of_the_hit_in_a_long_text():
    found = recall("needle")
    assert "needle here" in found
    assert len(found) < 1000


def test_recall_says_when_there_is_nothing():
    assert "Nothing on record" in recall("zebra")


def test_recall_without_a_word_is_an_error():
    with pytest.raises(ToolError, match="at least one word"):
        recall("?!")


def found(query: str, *events) -> str:
    return anyio.run(recall_tool(lambda session: events, get_blob).run, Recall(query), CONTEXT).content


LONG_RESULT = ToolFinished(
    seq=7, call_id="c", tool="shell", status="ok", content="line 1\n[…]\nline 2000", artifact="abcdef123456" + "0" * 52
)


def test_recall_searches_the_whole_of_a_result_of_which_the_model_saw_an_excerpt():
    assert "result of shell (artifact abcdef123456, line 1" in found("line 1234", LONG_RESULT)
    assert "\nline 1234\n" in found("line 1234", LONG_RESULT)


def test_an_artifact_that_is_gone_leaves_its_excerpt_to_recall():
    gone = ToolFinished(seq=8, call_id="c", tool="shell", status="ok", content="the pear", artifact="f" * 64)
    assert found("pear", gone) == "[#8 result of shell]\nthe pear"


def test_recall_says_which_call_a_result_is_of_and_keeps_its_lines_as_they_are():
    started = ToolStarted(seq=8, call_id="c", tool="read", effect="read", summary="read a.py from 3")
    result = ToolFinished(seq=9, call_id="c", tool="read", status="ok", content="     3\tpear\n     4\tplum\n")
    assert found("pear", started, result) == "[#9 result of read a.py from 3]\n     3\tpear\n     4\tplum"


def test_recall_takes_names_apart_and_words_without_their_endings():
    said = MessageAdded(seq=1, message=assistant("maxRetries was_limited to 3"), origin="model")
    assert "maxRetries" in found("retry limits retries", said)


def test_recall_finds_code_as_it_is_written_before_passages_of_the_same_words():
    code = MessageAdded(seq=1, message=assistant("return self.step(b, a)"), origin="model")
    other = MessageAdded(seq=2, message=assistant("step(a, b), step(a, b): a step of a and b"), origin="model")
    assert found("step(b, a", code, other).startswith("[#1 ")


def test_recall_finds_a_rare_word_before_many_common_ones():
    noise = [
        MessageAdded(seq=at, message=assistant(f"the order of the table {at}"), origin="model") for at in range(50)
    ]
    fact = MessageAdded(seq=60, message=assistant("the zebra table"), origin="model")
    assert found("order of the zebra table", *noise, fact).startswith("[#60 ")
