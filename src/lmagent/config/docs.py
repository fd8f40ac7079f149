"""Docs: the configuration reference, generated from the tables that the loader works by."""

from __future__ import annotations

from lmagent.config.fields import FIELDS, Field
from lmagent.config.names import NOT_USED, NOT_USED_PREFIXES, SEED_NAMES, VARIABLES
from lmagent.config.seeds import KEYS
from lmagent.config.show import shown
from lmagent.config.values import allowed

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
`agent` and you trust the folder (`lmagent config trust`), until the file changes; otherwise one line says that it is
not read. Broken JSON and values that are not allowed end the command with the file, the line and the key; an unknown
key is named with the nearest one. API keys in it are never printed. `lmagent config import FILE` copies the same values
into your own configuration instead.

```sh
echo '{"agent": {"model": {"provider": "lmstudio", "model_id": "qwen3-8b"}, "max_loop_iterations": 15}}' > agent.json
lmagent config --config agent.json --origin    # llm_model: agent.model.model_id in agent.json
```
"""
_UNSET = {"workspace": "see left", "agent_data_dir": "see left"}


def config_table_markdown() -> str:
    """`docs/configuration.md` from its settings table on: settings, accepted names of older systems, names not used."""
    settings = _table(
        ("Setting", "Variables", "Flag", "Value", "Default", "In an untrusted folder's files", "Meaning"),
        [_setting(field) for field in FIELDS],
    )
    aliases = _table(
        ("Variable", "Feeds", "Note"),
        [(f"`{name}`", f"`{seed.field}`", seed.note) for name, seed in SEED_NAMES.items() if seed.field],
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
        [(f"`{name}`", f"`{key.field}`" if key.field else "", key.note) for name, key in KEYS.items()],
    )
    return (
        f"{_LAYERS}\n## Settings\n\n{settings}\n## Names of older systems\n\n{aliases}\n"
        f"## Names that are known and not used\n\n{unused}\n"
        f"## Keys of agent_computer's `config.json`\n\n{_CONFIG_JSON}\n{keys}"
    )


def _setting(field: Field) -> tuple[str, ...]:
    default = _UNSET.get(field.name) or f"`{shown(field, field.default)}`"
    variables = ", ".join(f"`{name}`" for name in VARIABLES[field.name])
    flag = f"`{field.flag}`" if field.flag else ""
    return (f"`{field.name}`", variables, flag, allowed(field), default, _FOLDER[field.folder], field.help)


def _table(head: tuple[str, ...], body: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *body]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
