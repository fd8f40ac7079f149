"""How this copy was installed, and the command that adds a part to it (`lmagent-local[local]`).

The installers record it: `uv-receipt.toml` (uv tool) and `pipx_metadata.json` (pipx) in the environment,
`direct_url.json` (https://packaging.python.org/specifications/direct-url) with the metadata.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "lmagent-local"
"""The name on the package index; `lmagent` there is another project."""


def install_command(extra: str, *more: str, prefix: Path | None = None, url: dict[str, Any] | None = None) -> str:
    """Return the command that installs this copy anew with an extra of pyproject.toml, and further packages.

    Args:
        prefix: the environment; None for the one that runs.
        url: the content of `direct_url.json`; None to read this copy's.
    """
    prefix = prefix or Path(sys.prefix)
    url = _direct_url() if url is None else url
    address, vcs = str(url.get("url", "")), url.get("vcs_info", {}).get("vcs", "")
    if address.startswith("file:"):  # a local folder or archive
        wanted = f"{unquote(urlsplit(address).path)}[{extra}]"
    else:
        wanted = f"{DISTRIBUTION}[{extra}]" + (f" @ {f'{vcs}+' if vcs else ''}{address}" if address else "")
    editable = url.get("dir_info", {}).get("editable")
    if (prefix / "uv-receipt.toml").exists():
        others = "".join(f" --with {shlex.quote(name)}" for name in more)
        return f"uv tool install --force {'--editable ' if editable else ''}{shlex.quote(wanted)}{others}"
    others = "".join(f" {shlex.quote(name)}" for name in more)
    if (prefix / "pipx_metadata.json").exists():
        added = f" && pipx inject {DISTRIBUTION}{others}" if more else ""
        return f"pipx install --force {'--editable ' if editable else ''}{shlex.quote(wanted)}{added}"
    pip = "pip install" if any(prefix.glob("[Ll]ib/**/site-packages/pip")) else f"uv pip install --python {prefix}"
    return f"{pip} {'-e ' if editable else ''}{shlex.quote(wanted)}{others}"


def _direct_url() -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import, and only a hint needs it

    try:
        found = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]
