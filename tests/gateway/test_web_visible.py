"""What a person decides about on the page (web/session/visible.js), run by node: shown just as in a terminal."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from lmagent.tools.sanitize import visible

MODULE = Path(__file__).parents[2] / "src/lmagent/gateway/web/session/visible.js"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: it runs the page's module")
def test_the_page_shows_each_sign_as_the_terminal_does(tmp_path):
    signs = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF] + ["\r\n", "a\r\r\n\n\tb"]
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(MODULE, tmp_path)
    driver = 'import { visible } from "./visible.js"; import { readFileSync } from "node:fs";'
    driver += ' console.log(JSON.stringify(JSON.parse(readFileSync("signs.json")).map((sign) => visible(sign))));'
    (tmp_path / "driver.js").write_text(driver)
    (tmp_path / "signs.json").write_text(json.dumps(signs))
    run = subprocess.run(["node", "driver.js"], cwd=tmp_path, capture_output=True, check=True)
    assert json.loads(run.stdout) == [visible(sign) for sign in signs]
