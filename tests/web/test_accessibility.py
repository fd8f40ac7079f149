"""axe-core finds nothing on any screen, light and dark, on a desktop and on a phone."""

import hashlib
import json
from pathlib import Path

import pytest
from gateway_kit import gateway, shared
from images_kit import png
from panel_kit import begun, command, enter, go, holds, told
from web_kit import PHONE

from lmagent.gateway.http.static import WEB
from lmagent.testing.script import call, calls, say, think, tool

VENDOR = Path(__file__).parent / "vendor"
SHOTS = Path(__file__).parents[2] / ".cache" / "screenshots"

WORDS = """Here is what I found.

## Files

| file | lines |
|---|---:|
| `README.md` | 3 |

- one [link](https://example.org/)
- two

```python
def greet():
    return "hello"
```
"""

SCRIPT = [
    think("First I look.", calls(tool("read", path="README.md"), tool("read", path="missing.txt"))),
    call("write", path="new.py", content="def greet():\n    return 'hello'\n"),
    say(WORDS),
    call("bash", command="echo hello"),
]

SIZES = {"desktop": {"viewport": {"width": 1280, "height": 860}}, "phone": PHONE}

FIND = """async () => {
  const rules = { "heading-order": { enabled: false } }; // a model's text begins with whatever heading it likes
  const { violations } = await axe.run(document, { resultTypes: ["violations"], rules });
  return violations.map(({ id, impact, nodes }) =>
    `${impact} ${id}: ${nodes.map(({ target, failureSummary }) => `${target} ${failureSummary}`).join(" | ")}`);
}"""


def furnish(running) -> dict[str, str]:
    """Something to see on every screen; the addresses of the screens."""
    (running.workspace / "README.md").write_text("# Demo\n\nSomething small.\n")
    (running.workspace / "src").mkdir()
    (running.workspace / "src" / "app.py").write_text("def main():\n    return 1\n")
    (running.workspace / "logo.png").write_bytes(png(20, 10))
    jobs = [
        {"id": "digest", "name": "Digest", "schedule": "0 7 * * 1-5", "prompt": "Summarise."},
        {"id": "sweep", "schedule": "every 6h", "prompt": "Sweep.", "enabled": False},
        {"id": "odd", "schedule": "whenever", "prompt": "Never."},
    ]
    (running.workspace / "cron.json").write_text(json.dumps(jobs))
    running.ask("POST", "/api/memory", {"text": "We deploy on Fridays.", "pinned": True})
    skill = running.workspace / ".lmagent" / "skills" / "notes" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: notes\ndescription: Write notes.\n---\nWrite them.\n")
    session = begun(running, "Look around and greet")
    tasks = [
        {"id": "1", "kind": "step", "title": "Look", "status": "completed", "verification": "it was read"},
        {"id": "2", "kind": "step", "title": "Greet", "status": "in_progress", "depends_on": ["1"]},
        {"id": "a", "kind": "todo", "title": "Say so", "status": "blocked", "notes": "by whom?"},
    ]
    command(running, session, type="change_tasks", items=tasks)
    command(running, session, type="set_mode", mode="manual")
    told(running, session, "Now print it", done=False)
    beside = {name: f"#/s/{session}/{name}" for name in ("files", "changes", "work", "options", "files/src/app.py")}
    names = ("activity", "schedule", "memory", "skills", "usage", "models", "tools", "mcp", "settings", "nowhere")
    pages = {name: f"#/p/{name}" for name in names}
    return {"first": "#/", "chat": f"#/s/{session}", "gone": "#/s/20200101_000000_abcdef", **beside, **pages}


def faults(page) -> list[str]:
    """What axe-core finds."""
    if not page.evaluate("'axe' in window"):
        page.evaluate((VENDOR / "axe.min.js").read_text(encoding="utf-8"))
    return page.evaluate(FIND)


def settled(page) -> None:
    """Nothing is being loaded any more, and what is loaded is there."""
    holds(page, "!document.querySelector('.page:empty, .panel .body:empty')")
    holds(page, "!document.body.innerText.includes('Loading')")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.mark.parametrize(
    ("scheme", "size"),
    [
        ("light", "desktop"),
        pytest.param("dark", "phone", marks=pytest.mark.long),
        pytest.param("light", "phone", marks=pytest.mark.long),
        pytest.param("dark", "desktop", marks=pytest.mark.long),
    ],
)
def test_no_screen_has_a_fault(tmp_path, screen, scheme, size):
    SHOTS.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[str]] = {}
    with gateway(tmp_path, SCRIPT) as running:
        screens = furnish(running)
        page = screen(running, login=False, color_scheme=scheme, **SIZES[size])
        page.get_by_label("PIN").wait_for()

        def judge(name: str) -> None:
            settled(page)
            found[name] = faults(page)
            page.screenshot(path=SHOTS / f"{name.replace('/', '-')}-{size}-{scheme}.png")

        judge("login")
        enter(page)
        for name, address in screens.items():
            go(page, address)
            if name == "chat":
                page.get_by_role("button", name="Approve").wait_for()
                page.get_by_role("button", name="write new.py").click()
            if name == "tools":
                page.locator(".tool-card button").first.click()
            judge(name)
        for name, opens in (("commands", "/"), ("mentions", "@")):
            go(page, screens["first"])
            page.get_by_role("textbox", name="Message").fill(opens)
            page.get_by_role("listbox", name="Suggestions").wait_for()
            judge(name)
            page.get_by_role("textbox", name="Message").fill("")
        page.locator("h1").first.click()
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
        judge("keys")
        page.keyboard.press("Escape")
        if size == "phone":
            page.get_by_role("button", name="Sessions and pages").click()
            page.get_by_role("region", name="Sessions").wait_for()
            judge("drawer")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.long
def test_a_picture_without_a_name_would_be_found(screen):
    with shared() as running:
        page = screen(running)
        assert faults(page) == []
        page.evaluate("document.querySelector('main').append(document.createElement('img'))")
        [fault] = faults(page)
        assert fault.startswith("critical image-alt")


def test_every_panel_is_looked_at():
    """A panel that is added is added here, too."""
    rows = (WEB / "panels.js").read_text(encoding="utf-8").split("export const PANELS")[1]
    names = {line.partition('id: "')[2].partition('"')[0] for line in rows.splitlines() if 'id: "' in line}
    text = Path(__file__).read_text(encoding="utf-8")
    assert {name for name in names if f'"{name}"' not in text} - {"sessions"} == set()


def test_the_rules_are_those_that_were_taken():
    [package] = json.loads((VENDOR / "lock.json").read_text())["packages"]
    there = {path.name: path.read_bytes() for path in VENDOR.iterdir() if path.name != "lock.json"}
    assert {name: hashlib.sha256(content).hexdigest() for name, content in there.items()} == package["files"]
    assert package["licence"] == "MPL-2.0"
    assert b"Mozilla Public License" in there["LICENSE.axe-core.txt"]
