"""What the page makes of a diff (web/text/difflines.js), run by node: its lines are counted by what the hunks hold."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.amount import examples

from lmagent.tools.diff import LIMIT, counts, unified

MODULE = Path(__file__).parents[2] / "src/lmagent/gateway/web/text/difflines.js"
LOOP = """import { countDiff } from "./difflines.js"; import { createInterface } from "node:readline";
const told = (line) => console.log(JSON.stringify(countDiff(JSON.parse(line))));
createInterface({ input: process.stdin }).on("line", told);
"""
TEXTS = st.lists(st.sampled_from(["", "x", "++ x", "-- x", "+++ b/x", "--- a/x", "@@ -1 +1 @@", "\\ no"])).map(
    "\n".join
)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    if shutil.which("node") is None:
        pytest.skip("node is not installed: it runs the page's module")
    folder = tmp_path_factory.mktemp("diff")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "loop.js").write_text(LOOP)
    shutil.copy(MODULE, folder)
    command = ["node", "loop.js"]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:

        def ask(diff: str) -> tuple[int, int]:
            node.stdin.write(json.dumps(diff) + "\n")
            node.stdin.flush()
            told = json.loads(node.stdout.readline())
            return told["added"], told["removed"]

        yield ask


def test_lines_that_look_like_headings_are_counted(counted):
    assert counted(unified("x.patch", "a\n", "++ b\n")) == (1, 1)
    assert counted(unified("x.patch", "-- a\n", "")) == (0, 1)
    assert counted(unified("x.patch", "", "--- a\n+++ b\n@@ -1,9 +1,9 @@\n")) == (3, 0)


@settings(max_examples=examples(200), deadline=None)
@given(TEXTS, TEXTS)
def test_the_page_counts_what_the_tool_counts(counted, old, new):
    diff = unified("a file", old, new)
    assert counted(diff) == (counts(diff) if diff else (0, 0))


def test_a_diff_that_was_cut_counts_what_is_there(counted):
    diff = unified("long", "", "".join(f"+ line {number}\n" for number in range(LIMIT // 5)))
    assert "more lines of diff" in diff
    assert counted(diff) == counts(diff)
