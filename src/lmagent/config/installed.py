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
    """Return the command that installs this copy anew with an extra.

    Args:
        extra: name of the extra, as in pyproject.toml.
        more: further packages.
        prefix: the environment; None for the one that runs.
        url: the content of `direct_url.json`; None to read this copy's.
    """
    prefix = Path(sys.prefix) if prefix is None else prefix
    url = _direct_url() if url is None else url
    editable = bool(url.get("dir_info", {}).get("editable"))
    wanted = shlex.join((_requirement(extra, url),))
    others = f" {shlex.join(more)}" if more else ""
    if (prefix / "uv-receipt.toml").exists():
        return f"uv tool install --force {'--editable ' if editable else ''}{wanted}" + "".join(
            f" --with {shlex.quote(name)}" for name in more
        )
    if (prefix / "pipx_metadata.json").exists():
        added = f" && pipx inject {DISTRIBUTION}{others}" if more else ""
        return f"pipx install --force {'--editable ' if editable else ''}{wanted}{added}"
    pip = "pip install" if any(prefix.glob("[Ll]ib/**/site-packages/pip")) else f"uv pip install --python {prefix}"
    return f"{pip} {'-e ' if editable else ''}{wanted}{others}"


def _requirement(extra: str, url: dict[str, Any]) -> str:
    """Return the requirement: a local folder or archive, a repository, or the name on the index."""
    address = str(url.get("url", ""))
    if address.startswith("file:"):
        return f"{unquote(urlsplit(address).path)}[{extra}]"
    if address:
        vcs = url.get("vcs_info", {}).get("vcs", "")
        return f"{DISTRIBUTION}[{extra}] @ {f'{vcs}+' if vcs else ''}{address}"
    return f"{DISTRIBUTION}[{extra}]"


def _direct_url() -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import, and only a hint needs it

    try:
        found = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]
