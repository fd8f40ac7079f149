"""The page's modules as they are sent: compact, and otherwise the program that they are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lmagent.gateway.http.static import VENDOR, WEB, compact, find

TSC = Path(__file__).parents[2] / "tools" / "web" / "node_modules" / ".bin" / "tsc"
PRINT = ("--allowJs", "--noCheck", "--removeComments", "--target", "esnext", "--module", "esnext", "--ignoreConfig")


@pytest.mark.skipif(not shutil.which("node") or not TSC.exists(), reason="the page's type checker is not installed")
def test_every_module_is_sent_as_the_program_that_a_parser_reads_in_its_source(tmp_path):
    modules = [path for path in WEB.rglob("*.js") if VENDOR not in path.parents]
    printed = {}
    for name, change in (("source", str), ("sent", compact)):
        for path in modules:
            copy = tmp_path / name / path.relative_to(WEB)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(change(path.read_text()))
        files = sorted(str(path) for path in (tmp_path / name).rglob("*.js"))
        out = tmp_path / f"{name}-printed"
        command = [str(TSC), *PRINT, "--noResolve", "--rootDir", str(tmp_path / name), "--outDir", str(out), *files]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        printed[name] = {path.relative_to(out): path.read_text() for path in out.rglob("*.js")}
        assert len(printed[name]) == len(modules), said.stdout
    assert [path for path, text in printed["source"].items() if _flat(printed["sent"][path]) != _flat(text)] == []


def _flat(printed: str) -> str:
    """A printed module without line breaks, indentation, `const`, the spaces within brackets and names in end tags.

    A printer takes over where its source breaks lines; `html` templates differ in the rest.
    """
    printed = re.sub(r"\bconst\b", "let", re.sub(r"</\w+>", "</>", printed)).replace(" />", "/>")
    return re.sub(r"\s*\n\s*|(?<=[{(\[,;])\s+|\s+(?=[})\]])", "", printed)


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        (
            "// one\nlet a = 1; // two\n/** three\n * four */\n/* six */ let b = 'http://x';\n",
            "let a=1;let b='http://x';",
        ),
        ('const a = "/* text */ // text";', 'let a="/* text */ // text";'),
        ('const a = /[/*]  \\/ "/g.test(b) / 2 / c; // end', 'let a=/[/*]  \\/ "/g.test(b)/2/c;'),
        ("if (/'/.test(a)) return /  b/;", "if(/'/.test(a))return/  b/;"),
        ("a = b + +c - -d + ++e;", "a=b+ +c- -d+ ++e;"),
        (
            "const a = `  // text\n    ${ b + `${ {c: { d }} }  ` } /* text */`;",
            "let a=`  // text\n    ${b+`${{c:{d}}}  `} /* text */`;",
        ),
        ("html`<p>\n    a  \\` ${ b } $ \n    c</p>`", "html`<p>\na  \\` ${b} $ \nc</>`"),
        ("html`<p>\n    <b>a</b>\n    b\n  </p>`", "html`<p><b>a</>\nb</>`"),
        ("html`<${A} b=${c}\n  d=${e} />\n  ${f}\n  ${g}\n  <i />`", "html`<${A} b=${c}\nd=${e}/>${f}${g}<i/>`"),
        ("a = `<p></p>`", "a=`<p></p>`"),
        ("if (a) { b(); }\nfor (;;) { c = () => { d; }; }", "if(a){b()}\nfor(;;){c=()=>{d}}"),
        ("a = b\n++c\nd = [\n  1,\n]", "a=b\n++c\nd=[1,]"),
        ("class A { #b = 1; static #c; }", "class A{#b=1;static #c}"),
    ],
)
def test_comments_and_spaces_go_only_where_they_mean_nothing(source, sent):
    assert compact(source) == sent


def test_what_others_wrote_is_sent_to_the_byte_and_ours_compact():
    for path in sorted(VENDOR.glob("*.js")):
        assert find(f"vendor/{path.name}").content == path.read_bytes()
    assert b"\n/**" not in find("session/fold.js").content
    assert len(find("session/fold.js").content) < (WEB / "session/fold.js").stat().st_size
