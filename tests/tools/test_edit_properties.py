"""Properties that hold for any text, and for any search that a model distorts in the ways the contract names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.amount import examples

from lmagent.tools.edit.replace import EditRefused, replace_text
from lmagent.tools.edit.replace import edited as edit_of

TEXT = st.text(alphabet="ab1 \t\n\r\"'\\n.–“…\ufeff=:{}\u00a0é\u0301", max_size=60)
LF_TEXT = st.text(alphabet="ab1 \t\n\"'=(){}", max_size=24)
WORDS = ("alpha", "beta", "gamma", "delta", "count", "total")


def edited(source, search, replace, replace_all=False):
    try:
        return replace_text(source, search, replace, replace_all)
    except EditRefused:
        return None


def places(source, search):
    return [at for at in range(len(source)) if source.startswith(search, at)] if search else []


@settings(max_examples=examples(250), deadline=None)
@given(TEXT, TEXT, TEXT, st.booleans())
def test_any_input_gives_a_changed_text_or_a_refusal(source, search, replace, replace_all):
    result = edited(source, search, replace, replace_all)
    if result is None:
        return
    assert result != source
    assert result.startswith("\ufeff") == source.startswith("\ufeff")
    mark = "\r" if "\r" in source and "\n" not in source else "\n"
    if result.removeprefix("\ufeff") and "\n" in source:
        assert result.endswith(mark) == source.endswith(mark)


@settings(max_examples=examples(250), deadline=None)
@given(TEXT, st.data())
def test_any_piece_of_the_text_itself_is_found_or_refused(source, data):
    start = data.draw(st.integers(0, len(source)))
    stop = data.draw(st.integers(start, len(source)))
    replace = data.draw(TEXT)
    result = edited(source, source[start:stop], replace)
    if result is not None and len(places(source, source[start:stop])) == 1:
        head = source[:start].rstrip("\r\n\ufeff")
        assert result.removeprefix("\ufeff").startswith(head.removeprefix("\ufeff"))


def closed(text):
    """The last newline stays."""
    return text if text.endswith("\n") or not text else text + "\n"


@settings(max_examples=examples(250), deadline=None)
@given(LF_TEXT, LF_TEXT, LF_TEXT, LF_TEXT)
def test_an_exact_unique_match_is_what_str_replace_does(head, search, tail, replace):
    source = head + search + tail + "\n"
    wanted = closed(source.replace(search, replace, 1))
    if indent_is_doubled(source, search, replace):
        return  # see the clause on replacements that have the file's indentation already
    if len(places(source, search)) == 1 and wanted != source:
        assert replace_text(source, search, replace) == wanted
    elif search:
        assert edited(source, search, replace) is None


def indent_is_doubled(source, search, replace):
    before = source[: max(source.find(search), 0)]
    indent = before[before.rfind("\n") + 1 :]
    return bool(indent) and not indent.strip(" \t") and replace.startswith(indent)


@settings(max_examples=examples(250), deadline=None)
@given(st.lists(LF_TEXT, min_size=2, max_size=5), LF_TEXT, LF_TEXT)
def test_replace_all_of_exact_text_is_what_str_replace_does(pieces, search, replace):
    source = search.join(pieces) + "\n"
    wanted = closed(source.replace(search, replace)) if search else source
    assert edited(source, search, replace, True) == (wanted if wanted != source else None)


@settings(max_examples=examples(250), deadline=None)
@given(LF_TEXT, LF_TEXT, LF_TEXT, st.booleans())
def test_a_crlf_file_is_edited_like_the_same_file_with_lf(source, search, replace, replace_all):
    source += "\n"
    plain = edited(source, search, replace, replace_all)
    result = edited(source.replace("\n", "\r\n"), search, replace, replace_all)
    assert result == (None if plain is None else plain.replace("\n", "\r\n"))


@settings(max_examples=examples(250), deadline=None)
@given(LF_TEXT, LF_TEXT, LF_TEXT)
def test_a_byte_order_mark_makes_no_difference(source, search, replace):
    plain = edited(source, search, replace)
    assert edited("\ufeff" + source, search, replace) == (None if plain is None else "\ufeff" + plain)


@st.composite
def programs(draw):
    """Lines no two of which are alike, nested by four blanks, with strings, numbers and blank lines among them."""
    lines, depth = [], 0
    for number in range(draw(st.integers(3, 14))):
        word = draw(st.sampled_from(WORDS))
        tail = draw(st.sampled_from([f"= {number}", f'("{word}  {number}")', f"+= {number} * x", f"[{number}] – done"]))
        depth = draw(st.integers(0, min(depth + 1, 3)))
        lines.append("    " * depth + f"{word}{number} {tail}")
        if draw(st.booleans()):
            lines.append("")
    return lines


def distort(draw, lines):
    """The lines as a model may give them back; every one of these differences is to be bridged."""
    if draw(st.booleans()):
        lines = [line + draw(st.sampled_from(["", " ", "\t", "   "])) for line in lines]
    if draw(st.booleans()):
        lines = [line for line in lines if line.strip() or draw(st.booleans())]
    if draw(st.booleans()):
        lines = [line.replace(" = ", "  = ").replace(" * ", "   * ") for line in lines]
    if draw(st.booleans()):
        lines = [line.replace("–", "-") for line in lines]
    how = draw(st.sampled_from(["", "shift", "tabs"]))
    if how == "shift":
        lines = ["  " + line if line.strip() else line for line in lines]
    if how == "tabs":
        lines = [re.sub("^(?:    )+", lambda found: "\t" * (len(found[0]) // 4), line) for line in lines]
    if draw(st.booleans()):
        start = draw(st.integers(1, 400))
        lines = [f"{start + at:6d}\t{line}" for at, line in enumerate(lines)]
    return lines


@settings(max_examples=examples(250), deadline=None)
@given(programs(), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.data())
def test_a_distorted_search_changes_the_one_line_that_was_meant(lines, end, ended, data):
    filled = [at for at, line in enumerate(lines) if line.strip()]
    first = data.draw(st.sampled_from(filled))
    last = data.draw(st.sampled_from([at for at in filled if at >= first]))
    at = data.draw(st.sampled_from([each for each in filled if first <= each <= last]))
    source = end.join(lines) + (end if ended else "")
    search = distort(data.draw, lines[first : last + 1])
    mine = re.compile(rf"\b{re.escape(lines[at].split()[0].split('(')[0].split('[')[0])}\b")
    replace = [mine.sub("changed", line) for line in search]
    result = replace_text(source, "\n".join(search), "\n".join(replace))
    got = result.split(end)
    wanted = source.split(end)
    assert got[:at] == wanted[:at]
    assert got[at + 1 :] == wanted[at + 1 :]
    assert " ".join(got[at].split()).replace("-", "–") == " ".join(mine.sub("changed", lines[at]).split())
    assert got[at][: len(got[at]) - len(got[at].lstrip())] == lines[at][: len(lines[at]) - len(lines[at].lstrip())]


@settings(max_examples=examples(250), deadline=None)
@given(programs(), st.data())
def test_a_distorted_search_with_one_character_off_is_refused(lines, data):
    search = list(distort(data.draw, lines))
    row = data.draw(st.sampled_from([at for at, line in enumerate(search) if re.search(r"[a-z]\d", line)]))
    letters = [found.start() for found in re.finditer(r"[a-z](?=[a-z\d])", search[row])]
    at = data.draw(st.sampled_from(letters))
    search[row] = search[row][:at] + "Z" + search[row][at + 1 :]
    with pytest.raises(EditRefused) as refusal:
        replace_text("\n".join(lines) + "\n", "\n".join(search), "changed")
    assert refusal.value.reason == "missing"


def indented(lines, blanks):
    return [blanks + line if line.strip() else line for line in lines]


@settings(max_examples=examples(250), deadline=None)
@given(programs(), st.sampled_from(["    ", "\t", "  "]), st.sampled_from(["\n", "\r\n"]), st.data())
def test_a_replacement_indented_like_the_file_gives_the_same_text_as_one_like_the_search(lines, blanks, end, data):
    lines = [line for line in lines if line.strip()]
    first = data.draw(st.integers(0, len(lines) - 1))
    last = data.draw(st.integers(first, len(lines) - 1))
    source = end.join(["start of it", *indented(lines, blanks), "the end"]) + end
    at = data.draw(st.integers(first, last))
    own = indented([*lines[first:at], *added(lines[at]), *lines[at : last + 1]], blanks)
    like_file = edited(source, "\n".join(lines[first : last + 1]), "\n".join(own))
    expected = ["start of it", *indented(lines[:first], blanks), *own, *indented(lines[last + 1 :], blanks), "the end"]
    assert like_file in (None, end.join(expected) + end)
    if not any(line.startswith(" ") and line.startswith(blanks) for line in lines):
        assert like_file is not None


def added(line):
    """A new line as deep as another."""
    return [line[: len(line) - len(line.lstrip())] + "fresh()"]


@settings(max_examples=examples(250), deadline=None)
@given(programs(), st.data())
def test_blank_lines_that_the_search_left_out_are_not_doubled(lines, data):
    while lines and not lines[-1].strip():
        lines.pop()
    source = "\n".join(lines) + "\n"
    filled = [line for line in lines if line.strip()]
    at = data.draw(st.sampled_from([row for row, line in enumerate(lines) if line.strip()]))
    wanted = [*lines[:at], "changed", *lines[at + 1 :]]
    result = edited(source, "\n".join(filled), "\n".join(wanted))
    assert result == "\n".join(wanted) + "\n"


@settings(max_examples=examples(250), deadline=None)
@given(programs(), st.data())
def test_what_differed_is_told_and_nothing_is_where_nothing_did(lines, data):
    filled = [at for at, line in enumerate(lines) if line.strip()]
    first = data.draw(st.sampled_from(filled))
    last = data.draw(st.sampled_from([at for at in filled if at >= first]))
    search = distort(data.draw, lines[first : last + 1])
    source = "\n".join(lines) + "\n"
    told = edit_of(source, "\n".join(search), "\n".join([*search, search[-1] + " changed"])).bridged
    assert bool(told) == ("\n".join(line if line.strip() else "" for line in search) not in source)  # blank is blank
