"""Show: settings as lines of text without secrets, and the reference of all settings."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from lmagent.config.loader import Loaded
from lmagent.config.names import CONVERTED, NOT_USED, NOT_USED_PREFIXES
from lmagent.config.setting import Setting
from lmagent.config.settings import PLACEHOLDER_KEYS, SETTINGS

_FOLDER = {
    "free": "yes",
    "stricter": "only stricter",
    "smaller": "only smaller",
    "endpoint": "only on this machine",
    "trusted": "if trusted",
    "elsewhere": "no",
}
_LAYERS = """\
## Where settings come from

Of two places that set the same thing the later one wins; lists of permission rules add up. `lmagent config --origin`
names the place of each value.

1. `~/.config/lmagent/config.toml` (or the file that `LMAGENT_CONFIG` names)
2. `~/.config/lmagent/.env`
3. agent_computer's `config.json`: the file of `--config FILE` (or `LMAGENT_CONFIG_JSON`), else the workspace's
4. `.lmagent/config.toml` of the workspace
5. `.env` of the workspace, then of the current folder
6. the environment
7. options of the command line
"""
_CONFIG_JSON = """\
`--config FILE` reads the file, of any name, as your own. `config.json` of the workspace is read if it has an object
`agent` and you trust the folder (`lmagent config trust`), until the file changes or you type `lmagent config untrust`;
otherwise one line says that it is not read. Broken JSON and values that are not allowed end the command with the file,
the line and the key; an unknown key is named with the nearest one. API keys in it are never printed.
`lmagent config import FILE` copies the same values into your own configuration instead.

```sh
echo '{"agent": {"model": {"provider": "lmstudio", "model_id": "qwen3-8b"}, "max_loop_iterations": 15}}' > agent.json
lmagent config --config agent.json --origin    # llm_model: agent.model.model_id in agent.json
```
"""


class Row(Struct, frozen=True):
    """One line of `lmagent config`: a setting, its value as text, and where it comes from."""

    name: str
    value: str
    origin: str


def rows(loaded: Loaded) -> tuple[Row, ...]:
    """Return all settings; a list of rules has one row a rule, each with its own origin."""
    found: list[Row] = []
    for setting in SETTINGS:
        value = getattr(loaded.settings, setting.name)
        if setting.kind == "rules" and value:
            origins = loaded.item_origins[setting.name]
            found += [Row(setting.name, rule, str(origin)) for rule, origin in zip(value, origins, strict=True)]
        else:
            found.append(Row(setting.name, shown(setting, value), str(loaded.origins[setting.name])))
    return tuple(found)


def shown(setting: Setting, value: Any) -> str:
    """Return a value as text; of a secret only that it is set."""
    if setting.secret:
        return (value or "(none)") if value in PLACEHOLDER_KEYS else f"(set, {len(value)} characters)"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return ", ".join(str(item) for item in value) or "(none)"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return f"{value:g}" if isinstance(value, float) else str(value) or "(none)"


def config_table_markdown() -> str:
    """Return `docs/configuration.md` from its settings table on."""
    from lmagent.config.compat import KEYS

    settings = _table(
        ("Setting", "Variables", "Flag", "Value", "Default", "In an untrusted folder's files", "Meaning"),
        [_documented(setting) for setting in SETTINGS],
    )
    aliases = _table(
        ("Variable", "Feeds", "Note"),
        [
            (f"`{variable}`", f"`{setting.name}`", CONVERTED[variable][0] if variable in CONVERTED else "")
            for setting in SETTINGS
            for variable in setting.variables[1:]
        ],
    )
    unused = _table(
        ("Variable", "Why it is not used"),
        [
            *((f"`{name}`", note) for name, note in NOT_USED.items()),
            *((f"`{prefix}*`", note) for prefix, note in NOT_USED_PREFIXES.items()),
        ],
    )
    keys = _table(
        ("Key", "Feeds", "Note"),
        [(f"`{key}`", f"`{name}`" if name else "", note) for key, (name, note) in KEYS.items()],
    )
    return (
        f"{_LAYERS}\n## Settings\n\n{settings}\n## Names of older systems\n\n{aliases}\n"
        f"## Names that are known and not used\n\n{unused}\n"
        f"## Keys of agent_computer's `config.json`\n\n{_CONFIG_JSON}\n{keys}"
    )


def _documented(setting: Setting) -> tuple[str, ...]:
    is_path = setting.kind == "path"  # whose default depends on the machine
    default = "see left" if is_path else f"`{shown(setting, setting.default)}`"
    variables = ", ".join(f"`{name}`" for name in setting.variables)
    flag = f"`{setting.flag}`" if setting.flag else ""
    folder = _FOLDER[setting.folder]
    return (f"`{setting.name}`", variables, flag, setting.allowed, default, folder, setting.help)


def _table(head: tuple[str, ...], body: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *body]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
