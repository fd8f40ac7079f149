"""Take the page's libraries from the npm registry into its vendor folder, and those of its tests into theirs.

    python scripts/vendor_web.py              the versions of the lock files, checked by their integrity
    python scripts/vendor_web.py --newest     the newest ones; writes the lock files

Whatever registry npm is set to is used, and none is named. What is taken is a package's own build for browsers; the
only change is that the page's imports of other packages become relative ones, since a page has no package folder. Each
library's licence is kept beside it. `lock.json` has name, version, integrity (of the package as npm gives it), licence,
and sha256 of each file as it stands here; `tests/gateway/test_web_vendor.py` and `tests/web/test_accessibility.py`
check them.
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

FILES: dict[str, dict[str, str]] = {
    "preact": {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "preact-hooks.js"},
    "htm": {"dist/htm.mjs": "htm.js"},
    "@preact/signals": {"dist/signals.mjs": "signals.js"},
    "@preact/signals-core": {"dist/signals-core.mjs": "signals-core.js"},
    "marked": {"lib/marked.esm.js": "marked.js"},
    "@highlightjs/cdn-assets": {"es/highlight.min.js": "highlight.js"},
    "katex": {"dist/katex.min.js": "katex.js"},
    "mermaid": {"dist/mermaid.min.js": "mermaid.js"},
}
"""What is taken of each package, and its name here."""

TEST_FILES: dict[str, dict[str, str]] = {
    "axe-core": {"axe.min.js": "axe.min.js", "LICENSE-3RD-PARTY.txt": "LICENSE.axe-core-parts.txt"},
}
"""The same, for the tests of the page alone."""

IMPORTS = {
    "preact": "./preact.js",
    "preact/hooks": "./preact-hooks.js",
    "@preact/signals-core": "./signals-core.js",
}
"""What the libraries import of each other."""

WHOLE = {"katex.js": "export default self.katex;\n", "mermaid.js": ""}
"""Scripts that are no modules and import nothing, and what is put at their end: KaTeX becomes a module."""

_IMPORT = re.compile(r"""((?:\bfrom|\bimport)\s*)(["'])(@?[a-z][\w@/.-]*)\2""")
_SOURCE_MAP = re.compile(r"\n?//# sourceMappingURL=\S*\s*$")


def relative(text: str) -> str:
    """The module with imports of packages made relative, and without the pointer to a source map that is not here.

    Raises:
        KeyError: it imports a package that is not taken.
    """
    moved = _IMPORT.sub(lambda found: f"{found[1]}{found[2]}{IMPORTS[found[3]]}{found[2]}", text)
    return _SOURCE_MAP.sub("\n", moved)


def adapted(name: str, text: str) -> str:
    """A library as the page loads it."""
    return f"{text.rstrip()}\n{WHOLE[name]}" if name in WHOLE else relative(text)


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


def take(name: str, data: bytes, folder: Path) -> tuple[str, dict[str, str]]:
    """Write a package's files and its licence; returns the licence's name, and the sha256 of each file by its name."""
    sums: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:

        def read(path: str) -> bytes:
            member = archive.extractfile(f"package/{path}")
            if member is None:
                raise FileNotFoundError(f"{name} has no {path}")
            return member.read()

        licence = str(json.loads(read("package.json"))["license"])
        if folder == VENDOR:
            kept = {ours: adapted(ours, read(theirs).decode()).encode() for theirs, ours in FILES[name].items()}
        else:
            kept = {ours: read(theirs) for theirs, ours in TEST_FILES[name].items()}
        kept[f"LICENSE.{name.strip('@').replace('/', '-')}.txt"] = read("LICENSE")
    for ours, content in kept.items():
        (folder / ours).write_bytes(content)
        sums[ours] = hashlib.sha256(content).hexdigest()
    return licence, sums


def fill(folder: Path, names: Iterable[str], *, newest: bool) -> bool:
    """Take the packages of a folder and write its lock file; returns whether that was possible."""
    lock = folder / "lock.json"
    locked = (
        {} if newest or not lock.exists() else {row["name"]: row for row in json.loads(lock.read_text())["packages"]}
    )
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            facts, data = pack(name, locked.get(name, {}).get("version", ""), Path(scratch))
            wanted = locked.get(name, {}).get("integrity", facts["integrity"])
            if integrity(data) != wanted:
                print(f"{name}: the package is not what the lock file says ({wanted}); nothing of it was taken")
                return False
            licence, sums = take(name, data, folder)
            row = {"name": name, "version": facts["version"], "integrity": wanted, "licence": licence, "files": sums}
            rows.append(row)
            print(f"{name} {facts['version']} ({licence}): {', '.join(sums)}")
    lock.write_text(json.dumps({"packages": rows}, indent=2) + "\n")
    return True


def main() -> int:
    """Take everything; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Take the libraries of the page and of its tests from the npm registry."
    )
    parser.add_argument("--newest", action="store_true", help="the newest versions, not those of the lock files")
    newest = parser.parse_args().newest
    done = fill(VENDOR, FILES, newest=newest) and fill(TESTS, TEST_FILES, newest=newest)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
