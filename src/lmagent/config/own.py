"""Own: where this program's own files lie, so that an agent whose workspace holds them is kept from them.

A home folder that was named as the workspace holds the user's configuration: whoever may write it may switch the
sandbox off, and who reads it has the keys.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from lmagent.config.paths import config_dir, config_file, data_dir

_NAMES = (
    *("HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "APPDATA", "LOCALAPPDATA"),
    *("LMAGENT_CONFIG", "LMAGENT_CONFIG_JSON", "AGENT_DATA_DIR"),
)


def own_places(workspace: Path, env: Mapping[str, str]) -> tuple[Path, ...]:
    """Our folders and files that lie in a workspace, as paths below it; most have none.

    Args:
        workspace: absolute, links resolved.
        env: environment of this process.
    """
    return _places(str(workspace), tuple((name, env[name]) for name in _NAMES if name in env))


@lru_cache(maxsize=8)  # file tools ask at every call
def _places(workspace: str, named: tuple[tuple[str, str], ...]) -> tuple[Path, ...]:
    env = dict(named)
    folders = [config_dir(env), data_dir(env)]
    if env.get("AGENT_DATA_DIR"):
        folders.append(Path(env["AGENT_DATA_DIR"]).expanduser())
    if env.get("LMAGENT_CONFIG"):
        folders.append(config_file(env))
    if env.get("LMAGENT_CONFIG_JSON"):
        folders.append(Path(os.path.abspath(env["LMAGENT_CONFIG_JSON"])))
    # The folder above may be a link; what it is called is what stands in the workspace, too.
    spelled = {str(path) for path in folders} | {os.path.realpath(path) for path in folders}
    below = [os.path.relpath(path, workspace) for path in sorted(spelled) if path.startswith(f"{workspace}/")]
    return tuple(Path(path) for path in below)
