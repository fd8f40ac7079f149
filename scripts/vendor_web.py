"""Take the page's libraries from the npm registry into its vendor folder, and those of its tests into theirs.

    python scripts/vendor_web.py              the versions of the lock files, checked by their integrity
    python scripts/vendor_web.py --newest     the newest ones; writes the lock files

Whatever registry npm is set to is used, and none is named. The highlighter is the package's own build for browsers,
to the byte. The others are bundled by esbuild (of `tools/web`) into one file each of what the page uses: several small
files would not share what compresses well. Of marked the page takes the lexer alone, from the sources that the
package's source map holds. What the page never uses is left out (`UNUSED`). Each library's licence is kept beside it.
`lock.json` has name, version, integrity (of the package as npm gives it), licence, and sha256 of each file in this
folder; `tests/gateway/test_web_vendor.py` and `tests/web/test_accessibility.py` check them.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "src/lmagent/gateway/web/vendor"
TESTS = ROOT / "tests/web/vendor"
ESBUILD = ROOT / "tools/web/node_modules/.bin/esbuild"

FILES: dict[str, dict[str, str]] = {
    "@highlightjs/cdn-assets": {"es/highlight.min.js": "highlight.js"},
    "mermaid": {"dist/mermaid.min.js": "mermaid.js"},
}
"""What is taken of a package as it is, and its name here."""

BUNDLES: dict[str, tuple[tuple[str, ...], str]] = {
    "preact.js": (
        ("preact", "htm", "@preact/signals", "@preact/signals-core"),
        """
        export { default as htm } from "htm";
        export { h, render } from "preact";
        export {
          useCallback, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useRef, useState,
        } from "preact/hooks";
        export { batch, computed, signal, useSignal } from "@preact/signals";
        """,
    ),
    "marked.js": (
        ("marked",),
        """
        export { _Lexer as Lexer } from "./marked/Lexer.ts";
        export { _Tokenizer as Tokenizer } from "./marked/Tokenizer.ts";
        """,
    ),
    "katex.js": (("katex",), 'export { default } from "katex";'),
}
"""What is bundled: the name here, the packages that it holds, and what the page takes of them."""

SOURCES = {"marked": "lib/marked.esm.js.map"}
"""Packages of which the sources are needed, and the source map that holds them."""

MODULES = {"preact": "dist/preact.mjs", "@preact/signals": "dist/signals.module.js"}
"""Packages of which a part is left out, and the module that is bundled."""

UNUSED: dict[str, tuple[tuple[str, str], ...]] = {
    "preact": (
        (
            r"\b(?!this\b)\w+\.(?:getDerivedStateFromProps|getSnapshotBeforeUpdate|getChildContext|contextType|then"
            r"|component(?:WillReceiveProps|WillUpdate|WillMount|DidMount|DidUpdate))\b",
            "(void 0)",
        ),
        (r"\b(?:\w+\.props|M)\.__P\b|\b\w+(?:\.__c)?\.__z\b(?!=)", "(void 0)"),
        (r"\b(?:32|128)&\w+\.__u\b", "0"),
        (r'"style"==\w\b', "!1"),
    ),
    "@preact/signals": (
        (r"function \w+\(\w\)\{var \w=this,\w=\w\.data,.*?__b:\{configurable:!0,value:1\}\}\);", ""),
        (r'if\("string"==typeof n\.type\)\{var r,t=n\.props;.*?(?=i\(n\)\}\);b\("__r")', ""),
        (r'var r;if\("string"==typeof n\.type&&\(r=n\.__e\)\)\{.*?(?=i\(n\)\}\);function k\()', ""),
        (r'function k\(i,n,r,t\)\{.*?(?=b\("unmount")', ""),
        (r'if\("string"==typeof n\.type\)\{var r=n\.__e;.*?\}else\{', 'if("string"!=typeof n.type){'),
    ),
    "marked": (
        (r"this\.options\.(?:pedantic|breaks|hooks|silent)\b", "undefined"),
        (r"this\.options\.gfm\b", "true"),
        (r"options \|\| _defaults\b", "options!"),
        (r"\b(block|inline)\.normal\b", r"\1.gfm"),
        (r"(?ms)^  static .*?^  \}\n", ""),
        (r"(?m)^  (?:normal|pedantic|breaks): \w+,\n", ""),
        (r"(?ms)^const (?:blockPedantic|inlinePedantic|inlineBreaks)\b.*?^\};\n", ""),
        (r"(?ms)^const \w+Pedantic = edit\(.*?;\n", ""),
        (r"(?m)^  (?:\w+: (?:noopTest|inlineText)|lheading|paragraph|emStrongLDelim|emStrongRDelimAst),.*\n", ""),
        (r"(?ms)^const (?:noopTest|lheading|paragraph|emStrongLDelim|emStrongRDelimAst|inlineText)\b.*?;\n", ""),
        (r"(?ms)^const supportsLookbehind = .*?^\}\)\(\);\n", "const supportsLookbehind = true;\n"),
        (r"(?m)^  (?:escape(?:Test|Replace)\w*|percentDecode): .*\n", ""),
        (r"(?m)^  (?:pedantic\w+|outputLinkReplace|notSpaceStart|endingNewline): .*\n", ""),
    ),
}
"""What is replaced in a package: options that the page never sets, the rules that only they use, the parts for other
programs; of Preact classes, portals (`__P`), suspense and pages made by a server (`__u`, `__z`); and signals as
attributes or text: the page reads their values."""

SHORTENED = {"marked.js": ("marked/rules.ts", r"(?s)export const other = \{\n(.*?)\n\};")}
"""Objects whose property names are shortened in a bundle: nothing outside of it sees them."""

TEST_FILES: dict[str, dict[str, str]] = {
    "axe-core": {"axe.min.js": "axe.min.js", "LICENSE-3RD-PARTY.txt": "LICENSE.axe-core-parts.txt"},
}
"""The same, for the tests of the page alone."""


def pack(name: str, version: str, folder: Path) -> tuple[dict[str, Any], bytes]:
    """What npm says of a package, and the package.

    Raises:
        subprocess.CalledProcessError: npm cannot get it.
    """
    asked = f"{name}@{version}" if version else name
    done = subprocess.run(["npm", "pack", asked, "--json"], cwd=folder, capture_output=True, text=True, check=True)
    [facts] = json.loads(done.stdout)
    return facts, (folder / facts["filename"]).read_bytes()


def integrity(data: bytes) -> str:
    """As npm writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


def unpack(name: str, data: bytes, scratch: Path) -> Path:
    """Put a package where imports of it are looked for; returns its folder."""
    folder = scratch / "node_modules" / name
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(folder.parent / "packed", filter="data")
    folder.parent.mkdir(parents=True, exist_ok=True)
    (folder.parent / "packed/package").rename(folder)
    if name in SOURCES:
        (scratch / name).mkdir()
        sources = json.loads((folder / SOURCES[name]).read_text())
        found = dict(zip(sources["sources"], sources["sourcesContent"], strict=True))
        for path, content in without_unused(name, found).items():
            (scratch / name / Path(path).name).write_text(content)
    elif name in MODULES:
        path = folder / MODULES[name]
        path.write_text(without_unused(name, {"": path.read_text()})[""])
    return folder


def without_unused(name: str, found: dict[str, str]) -> dict[str, str]:
    """Return files of a package without what the page does not use.

    Raises:
        ValueError: nothing matches a pattern of `UNUSED`.
    """
    for pattern, replacement in UNUSED[name]:
        counted = {path: re.subn(pattern, replacement, content) for path, content in found.items()}
        if not sum(count for _, count in counted.values()):
            raise ValueError(f"{name} has nothing like {pattern!r} any more: look what has become of it")
        found = {path: content for path, (content, _) in counted.items()}
    return found


def bundle(file: str, scratch: Path) -> None:
    """Write a bundle into the page's vendor folder.

    Raises:
        subprocess.CalledProcessError: esbuild is not installed, or cannot read the packages.
    """
    (scratch / "entry.js").write_text(BUNDLES[file][1])
    command = [str(ESBUILD), "entry.js", "--bundle", "--minify", "--format=esm", "--target=es2022"]
    command += ["--legal-comments=none", "--charset=utf8", f"--outfile={VENDOR / file}"]
    if file in SHORTENED:
        path, pattern = SHORTENED[file]
        [inside] = re.findall(pattern, (scratch / path).read_text())
        names = "|".join(re.findall(r"(?m)^  (\w+):", inside))
        command.append(f"--mangle-props=^(?:{names})$")
    subprocess.run(command, cwd=scratch, capture_output=True, check=True)


def fill(folder: Path, taken: dict[str, dict[str, str]], names: Iterable[str], *, newest: bool) -> bool:
    """Take the packages of a folder and write its lock file; returns whether that was possible.

    Args:
        folder: where to.
        taken: what is taken as it is, by package.
        names: all packages.
        newest: take the newest versions.
    """
    lock = folder / "lock.json"
    locked = (
        {} if newest or not lock.exists() else {row["name"]: row for row in json.loads(lock.read_text())["packages"]}
    )
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        for name in names:
            facts, data = pack(name, locked.get(name, {}).get("version", ""), scratch)
            wanted = locked.get(name, {}).get("integrity", facts["integrity"])
            if integrity(data) != wanted:
                print(f"{name}: the package is not what the lock file says ({wanted}); nothing of it was taken")
                return False
            package = unpack(name, data, scratch)
            kept = {ours: (package / theirs).read_bytes() for theirs, ours in taken.get(name, {}).items()}
            kept[f"LICENSE.{name.strip('@').replace('/', '-')}.txt"] = (package / "LICENSE").read_bytes()
            for ours, content in kept.items():
                (folder / ours).write_bytes(content)
            licence = str(json.loads((package / "package.json").read_text())["license"])
            row = {"name": name, "version": facts["version"], "integrity": wanted, "licence": licence}
            rows.append({**row, "files": {ours: hashlib.sha256(content).hexdigest() for ours, content in kept.items()}})
            print(f"{name} {facts['version']} ({licence}): {', '.join(kept)}")
        written: dict[str, Any] = {"packages": rows}
        if folder == VENDOR:
            for file in BUNDLES:
                bundle(file, scratch)
            sums = {file: hashlib.sha256((VENDOR / file).read_bytes()).hexdigest() for file in BUNDLES}
            written["bundles"] = {file: {"packages": BUNDLES[file][0], "sha256": sums[file]} for file in BUNDLES}
    lock.write_text(json.dumps(written, indent=2) + "\n")
    return True


def main() -> int:
    """Take everything; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Take the libraries of the page and of its tests from the npm registry."
    )
    parser.add_argument("--newest", action="store_true", help="the newest versions, not those of the lock files")
    newest = parser.parse_args().newest
    if not ESBUILD.exists():
        print("esbuild is not installed: run `npm ci` in tools/web first")
        return 1
    bundled = [name for names, _ in BUNDLES.values() for name in names]
    done = fill(VENDOR, FILES, [*bundled, *FILES], newest=newest) and fill(TESTS, TEST_FILES, TEST_FILES, newest=newest)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
