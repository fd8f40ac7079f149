"""The page's libraries are what the lock file says, with their licences, and ask nothing of anybody else."""

import hashlib
import json
import re
from pathlib import Path

WEB = Path(__file__).parents[2] / "src/lmagent/gateway/web"
VENDOR = WEB / "vendor"
LOCK = json.loads((VENDOR / "lock.json").read_text())
PACKAGES = LOCK["packages"]


def test_every_file_is_the_one_that_was_taken():
    sums = {name: sum for package in PACKAGES for name, sum in package["files"].items()}
    sums |= {name: bundle["sha256"] for name, bundle in LOCK["bundles"].items()}
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.iterdir() if path.is_file()}
    assert {name: sum for name, sum in there.items() if name != "lock.json" and not name.endswith(".d.ts")} == sums


def test_every_package_has_its_version_and_its_licence():
    for package in PACKAGES:
        assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
        assert package["integrity"].startswith("sha512-")
        assert package["licence"] in ("MIT", "Apache-2.0", "BSD-3-Clause")
        [licence] = [name for name in package["files"] if name.startswith("LICENSE.")]
        assert "copyright" in (VENDOR / licence).read_text().lower()


def test_every_bundle_is_of_packages_that_were_taken_and_the_lexer_makes_no_html():
    assert {name for bundle in LOCK["bundles"].values() for name in bundle["packages"]} <= {
        package["name"] for package in PACKAGES
    }
    assert "<blockquote>" not in (VENDOR / "marked.js").read_text()


def test_the_page_imports_its_own_files_alone():
    wanted = re.compile(r"""(?:\bfrom|\bimport)\s*\(?\s*["']([^"'\s]+)["']""")
    for path in WEB.rglob("*.js"):
        if path.name in ("highlight.js", "katex.js", "mermaid.js"):  # their grammars are full of such words
            continue
        for target in wanted.findall(path.read_text(encoding="utf-8")):
            assert (path.parent / target).is_file() or target.endswith("/wire.js"), (path.name, target)


def test_the_page_names_no_other_host():
    texts = [path for path in WEB.glob("*.*") if path.suffix != ".png"]
    for path in [*texts, *WEB.glob("styles/*"), *WEB.glob("panels/*.js"), *WEB.glob("words/*.js")]:
        addresses = re.findall(
            r"""(?:https?:)?//[a-z0-9][\w.-]+\.[a-z]{2,}[^\s"'`]*""", path.read_text(encoding="utf-8")
        )
        assert [address for address in addresses if "www.w3.org/2000/svg" not in address] == [], path.name


def test_the_page_makes_no_html_of_text_and_has_no_styles_in_attributes():
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|style="
    )
    for path in [*WEB.glob("*.js"), *WEB.glob("*.html"), *WEB.glob("panels/*.js"), *WEB.glob("words/*.js")]:
        assert not sinks.search(path.read_text(encoding="utf-8")), path.name


def test_own_modules_are_short_and_checked():
    for path in [*WEB.glob("*.js"), *WEB.glob("panels/*.js"), *WEB.glob("words/*.js")]:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("// @ts-check\n"), path.name
        assert len(text.splitlines()) <= 600, path.name
