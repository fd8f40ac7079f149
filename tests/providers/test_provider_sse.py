import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmagent.core.errors import BadReply
from lmagent.providers import sse as sse_module
from lmagent.providers.sse import SseReader


def read(*chunks: bytes) -> list[bytes]:
    reader = SseReader()
    payloads = [payload for chunk in chunks for payload in reader.feed(chunk)]
    return payloads + reader.finish()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_kind_of_line_end_separates_events(end: bytes) -> None:
    assert read(b"data: a" + end + end + b"data: b" + end + end) == [b"a", b"b"]


def test_the_blank_behind_the_colon_is_optional_and_only_one_is_taken() -> None:
    assert read(b"data:a\n\ndata:  b\n\n") == [b"a", b" b"]


def test_comments_and_unknown_fields_give_nothing() -> None:
    assert read(b": keep-alive\n\n:\n\nid: 7\nretry: 10\nevent: message\n\n") == []


def test_data_lines_of_one_event_are_joined_by_line_feeds() -> None:
    assert read(b"data: a\ndata: b\n\n") == [b"a\nb"]


def test_a_byte_order_mark_is_skipped() -> None:
    assert read(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]


def test_a_last_event_without_its_blank_line_counts() -> None:
    assert read(b"data: a\n\ndata: b") == [b"a", b"b"]


def test_an_error_event_is_wrapped_as_an_error() -> None:
    assert read(b'event: error\ndata: {"code":500}\n\ndata: x\n\n') == [b'{"error":{"code":500}}', b"x"]
    assert read(b"event: error\ndata: out of memory\n\n") == [b'{"error":"out of memory"}']
    assert read(b'error: {"message":"no"}\n\n') == [b'{"error":{"message":"no"}}']


def test_cr_lf_cut_between_its_halves_is_one_line_end() -> None:
    assert read(b"data: a\r", b"\n\r", b"\ndata: b\r", b"\n\r\n") == [b"a", b"b"]


def test_a_character_cut_in_half_arrives_whole() -> None:
    body = "data: größer 🦙\n\n".encode()
    for at in range(len(body)):
        assert read(body[:at], body[at:]) == ["größer 🦙".encode()]


def test_a_huge_line_in_many_pieces_is_read_in_linear_time() -> None:
    payload = b"x" * 4_000_000
    pieces = [payload[at : at + 1000] for at in range(0, len(payload), 1000)]
    assert read(b"data: ", *pieces, b"\n\n") == [payload]


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_module, "MAX_EVENT", 1000)
    with pytest.raises(BadReply, match="more than 1000 bytes"):
        read(*[b"data: " + b"x" * 100] * 20)


LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data:", b": c", b"event: error", b"event: x", b"", b"", "data: é".encode()]
)


@settings(deadline=None)
@given(
    st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=12),
    st.lists(st.integers(0, 60), max_size=6),
)
def test_the_same_payloads_come_out_for_every_cut(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    body = b"".join(line + end for line, end in lines)
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    assert read(*[body[a:b] for a, b in itertools.pairwise(edges)]) == read(body)
