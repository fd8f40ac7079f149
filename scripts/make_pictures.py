"""Draw the pictures of the README: the real program in a terminal and in a browser, at work on a small project.

The model is scripted, over real HTTP: what it says is written below. Tools, sandbox and drawing are real.

    make pictures
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import pyte

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
sys.path[:0] = [str(ROOT / "tests" / kit) for kit in ("repl", "gateway", "web")]

from gateway_kit import gateway  # noqa: E402
from terminal import ROWS, Terminal  # noqa: E402

from lmagent.testing import ScriptedServer  # noqa: E402
from lmagent.testing.script import Reply, call, say  # noqa: E402

COLUMNS = 100
TASK = "The mean of an empty list crashes. Fix it and show me that it works."
FILES = {
    "stats.py": 'def mean(numbers):\n    """The mean, 0 for no numbers."""\n    return sum(numbers) / len(numbers)\n',
    "test_stats.py": "import unittest\n\nfrom stats import mean\n\n\nclass Mean(unittest.TestCase):\n"
    "    def test_of_several(self):\n        self.assertEqual(mean([1, 2, 6]), 3)\n\n"
    "    def test_of_none(self):\n        self.assertEqual(mean([]), 0)\n",
}
ANSWER = """The mean of no numbers is now `0`, as the docstring says.

| test | before | now |
|---|---|---|
| `test_of_several` | passed | passed |
| `test_of_none` | ZeroDivisionError | passed |
"""

FONT, LINE, WIDTH = 14, 19, 8.43
"""Size of a letter, height of a row, width of a column, in pixels."""

NO_BREAK = "\u00a0"
INK, PAPER = "#d8dee4", "#16191d"
COLOURS = {
    "black": "#3b4048", "red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "blue": "#79c0ff",
    "magenta": "#d2a8ff", "cyan": "#76e3ea", "white": INK, "brightblack": "#8b949e", "brightred": "#ffa198",
    "brightgreen": "#56d364", "brightbrown": "#f2cc60", "brightyellow": "#f2cc60", "brightblue": "#a5d6ff",
    "brightmagenta": "#e2c5ff", "brightcyan": "#b3f0ff", "brightwhite": "#ffffff",
}  # fmt: skip


def script() -> list[Reply]:
    """What the model says, in the manner of a capable one."""
    return [
        call("read", path="stats.py"),
        call(
            "edit",
            path="stats.py",
            search="    return sum(numbers) / len(numbers)",
            replace="    return sum(numbers) / len(numbers) if numbers else 0",
        ),
        call("shell", command="python3 -m unittest -v"),
        say(ANSWER),
    ]


def project(folder: Path) -> Path:
    """The small project that is worked on."""
    folder.mkdir(exist_ok=True)
    for name, content in FILES.items():
        (folder / name).write_text(content)
    return folder


def terminal(folder: Path) -> str:
    """A conversation in the terminal, as SVG."""
    workspace = project(folder / "stats")
    with ScriptedServer(script()) as server, Terminal(workspace, server.base_url, columns=COLUMNS) as shown:
        shown.wait_for("answers")
        shown.wait_for("mode normal · sandbox")
        shown.enter(TASK)
        for question, reason in (("edit", "asks before writing"), ("shell", "asks before running")):
            shown.wait_for(reason)
            shown.wait_for(f"Allow {question}?")
            shown.enter("y")
        shown.sees(lambda rows: any("verified" in row for row in rows) and any("idle" in row for row in rows))
        screen = pyte.HistoryScreen(COLUMNS, ROWS, history=500)
        pyte.Stream(screen).feed(shown.shown)
    rows = [*screen.history.top, *(screen.buffer[row] for row in range(ROWS))]
    return svg([[row[column] for column in range(COLUMNS)] for row in rows])


def svg(rows: list[list[Any]]) -> str:
    """Rows of characters with their colours as a picture; of the empty rows above the status line one is left."""
    filled = ["".join(cell.data for cell in row).strip() for row in rows]
    rows = [row for at, row in enumerate(rows) if filled[at] or (at and filled[at - 1])]
    width, height = COLUMNS * WIDTH + 32, len(rows) * LINE + 32
    drawn = "\n".join(line for at, row in enumerate(rows) for line in _row(row, 16 + at * LINE))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-size="{FONT}" '
        f'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" fill="{INK}">\n'
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>\n{drawn}\n</svg>\n'
    )


def _row(row: list[Any], top: float) -> Iterator[str]:
    column = 0
    for style, cells in groupby(row, lambda cell: (cell.fg, cell.bg, cell.bold, cell.italics, cell.reverse)):
        text = "".join(cell.data for cell in cells)
        ink, paper = _colour(style[0], INK), _colour(style[1], "")
        if style[4]:
            ink, paper = paper or PAPER, ink
        left, length = 16 + column * WIDTH, len(text) * WIDTH
        column += len(text)
        if paper:
            yield f'<rect x="{left:.1f}" y="{top}" width="{length:.1f}" height="{LINE}" fill="{paper}"/>'
        if not (seen := text.strip()):
            continue
        left += (len(text) - len(text.lstrip())) * WIDTH
        length = len(seen) * WIDTH
        look = (' font-weight="bold"' if style[2] else "") + (' font-style="italic"' if style[3] else "")
        place = f'x="{left:.1f}" y="{top + FONT:.0f}" textLength="{length:.1f}" fill="{ink}"'
        yield f"<text {place}{look}>{escape(seen).replace(' ', NO_BREAK)}</text>"


def _colour(name: str, default: str) -> str:
    return default if name == "default" else COLOURS.get(name) or f"#{name}"


def page(folder: Path, path: Path) -> None:
    """The same conversation in the page, as PNG."""
    from playwright.sync_api import sync_playwright
    from web_kit import CHROMIUM, ask, finished

    folder.mkdir()
    project(folder / "workspace")
    with (
        gateway(folder, script(), options=["--permission", "auto"]) as running,
        sync_playwright() as driver,
    ):
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1200, "height": 760}, color_scheme="light")
        shown.goto(running.url)
        shown.get_by_label("PIN").fill(running.env["AGENT_PIN"])
        shown.keyboard.press("Enter")
        ask(shown, TASK)
        finished(shown)
        shown.wait_for_timeout(500)
        shown.screenshot(path=path)
        browser.close()


def main() -> None:
    """Draw both."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        (PICTURES / "terminal.svg").write_text(terminal(Path(made)), encoding="utf-8")
        page(Path(made) / "page", PICTURES / "page.png")


if __name__ == "__main__":
    main()
