"""A paragraph that grows (web/text/reading.js), run by node: what is settled of it is what the whole of it gives."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "src/lmagent/gateway/web"
LOOP = """import { read, settled, UNSETTLED } from "./text/reading.js"; import { createInterface } from "node:readline";
createInterface({ input: process.stdin }).on("line", (line) => {
  const { text, step } = JSON.parse(line);
  let known = UNSETTLED;
  let most = 0;
  for (let end = step; end <= text.length; end += step) {
    const begun = text.slice(0, end);
    const tokens = read(begun, known);
    if (JSON.stringify(tokens) !== JSON.stringify(read(begun))) return console.log(JSON.stringify({ differs: begun }));
    const last = tokens.at(-1);
    known = last?.type === "paragraph" ? settled(last.tokens) : UNSETTLED;
    most = Math.max(most, known.text.length);
  }
  console.log(JSON.stringify({ most }));
});
"""
PLAIN = ("The answer goes on.", "**bold**", "`code`", "[a link](https://example.org/x)", "*stress*", "and,", "so: on")
ODD = (
    *(
        "*",
        "**",
        "_",
        "`",
        "``",
        "[",
        "](x)",
        "~~",
        "<b>",
        "</b>",
        "\\*",
        "!",
        "&amp;",
        "www.example.org",
        "\n",
        "  \n",
    ),
    *("https://example.org", "me@example.org", "a_b_c", "**b*c**", "`a", "~gone~", "![p](q)", "[ref]", "2*3*4"),
    *("$", "$x^2$", "$$", "$$y$$", "\\(z\\)", "\\[", "$5 and $6"),
)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    if shutil.which("node") is None:
        pytest.skip("node is not installed: it runs the page's module")
    folder = tmp_path_factory.mktemp("reading")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "loop.js").write_text(LOOP)
    (folder / "text").mkdir()
    shutil.copy(WEB / "text/reading.js", folder / "text")
    shutil.copytree(WEB / "vendor", folder / "vendor")
    command = ["node", "loop.js"]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(text: str, step: int) -> dict:
            process.stdin.write(json.dumps({"text": text, "step": step}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


@pytest.mark.parametrize("seed", range(60))
def test_a_paragraph_reads_the_same_however_much_of_it_was_settled(node, seed):
    chance = random.Random(seed)
    pieces = PLAIN if seed % 3 == 0 else (*PLAIN * 12, *ODD)
    text = "".join(chance.choice(pieces) + chance.choice([" ", " ", " ", ""]) for _ in range(150))
    assert "differs" not in node(text, chance.choice([7, 23, 61]))


def test_most_of_an_endless_paragraph_is_settled(node):
    text = " ".join(PLAIN * 40)
    assert node(text, 50)["most"] > len(text) - 600
