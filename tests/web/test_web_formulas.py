"""Formulas and diagrams in answers: drawn by the page itself, and a text that cannot be drawn stays as it is."""

from __future__ import annotations

import pytest
from gateway_kit import gateway
from panel_kit import holds
from web_kit import ask, finished, shot, talk

from lmagent.testing.script import say

pytestmark = pytest.mark.long

FORMULAS = r"""The root is $\sqrt{b^2-4ac}$, and \(x_1 + y\) too, with $n$ terms of $f(x)$ or $2+2$.

$$
\begin{pmatrix} a & b \\ c & d \end{pmatrix}
= \int_0^1 x\,dx
$$

\[ E = mc^2 \]

- in a list: $\alpha$
"""

MONEY = r"""It costs $5 and $6, or US$7 (from $8-$9, 10$ at most, $1,000 or $2,000).
Set $HOME and $PATH: `$x^2$`, \$x_1$, $ x_2 $, ${VAR}, "$name" for $user$s, and $not words at all$ here.

```
$$x^2$$
```
"""


def test_formulas_are_drawn_in_sentences_and_on_lines_of_their_own(tmp_path, screen):
    with gateway(tmp_path, [say(FORMULAS)]) as running:
        page = screen(running)
        ask(page, "formulas")
        finished(page)
        holds(page, "document.querySelectorAll('.markdown math').length === 8")
        assert page.locator(".formula.display math").count() == 2
        assert page.locator("math msqrt").count() == 1
        assert page.locator("math mtable mtr").count() == 2
        assert "$" not in talk(page).partition("The root")[2]
        shot(page, tmp_path, "formulas")


def test_amounts_of_money_variables_and_code_stay_as_they_are(tmp_path, screen):
    with gateway(tmp_path, [say(MONEY)]) as running:
        page = screen(running)
        ask(page, "money")
        finished(page)
        said = page.locator(".markdown").inner_text()
        for text in ("$5 and $6, or US$7 (from $8-$9, 10$ at most, $1,000 or $2,000)", "$HOME and $PATH: $x^2$, $x_1$"):
            assert text in said
        assert "$ x_2 $" in said
        assert "$not words at all$" in said
        assert page.locator(".formula").count() == 0


@pytest.mark.parametrize("text", [r"$\unknowncommand{x}_{$", r"$\href{javascript:alert(1)}{x_1}$"])
def test_what_is_no_formula_stays_text_and_loads_nothing(tmp_path, screen, text):
    with gateway(tmp_path, [say(f"Here: {text} and then $y_2$.")]) as running:
        page = screen(running)
        ask(page, "formula")
        finished(page)
        page.locator("math msub").last.wait_for()
        assert page.locator(".markdown a, .markdown [href]").count() == 0


DIAGRAM = """Like this:

```mermaid
graph TD
  A[Begin] --> B{Good?}
  B -->|yes| C[Ship]
```
"""


def test_a_diagram_is_drawn_in_a_frame_without_an_origin_and_its_source_is_a_click_away(tmp_path, screen):
    with gateway(tmp_path, [say(DIAGRAM)]) as running:
        page = screen(running)
        ask(page, "diagram")
        finished(page)
        frame = page.frame_locator("iframe[title=Diagram]")
        frame.get_by_text("Ship").wait_for()
        assert page.locator("iframe[title=Diagram]").get_attribute("sandbox") == "allow-scripts"
        [inner] = [one for one in page.frames if one.url.endswith("/diagram")]
        assert inner.evaluate("self.origin") == "null"
        holds(page, "document.querySelector('.diagram iframe').style.height !== ''")
        shot(page, tmp_path, "diagram")
        page.get_by_role("button", name="Source").click()
        page.get_by_text("A[Begin] --> B{Good?}").wait_for()


def test_a_diagram_that_cannot_be_drawn_says_why_and_shows_its_source(tmp_path, screen):
    with gateway(tmp_path, [say("```mermaid\ngraph TD\n  A[[[ -->\n```\n")]) as running:
        page = screen(running)
        ask(page, "diagram")
        finished(page)
        page.get_by_text("This diagram could not be drawn").wait_for()
        assert "A[[[ -->" in talk(page)
