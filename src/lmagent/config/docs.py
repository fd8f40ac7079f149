"""Docs: the configuration reference, generated from the tables that the loader works by."""

from __future__ import annotations

from lmagent.config.fields import FIELDS, Field
from lmagent.config.names import NOT_USED, NOT_USED_PREFIXES, SEED_NAMES, VARIABLES
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
    return (
        f"## Settings\n\n{settings}\n## Names of older systems\n\n{aliases}\n"
        f"## Names that are known and not used\n\n{unused}"
    )


def _setting(field: Field) -> tuple[str, ...]:
    default = _UNSET.get(field.name) or f"`{shown(field, field.default)}`"
    variables = ", ".join(f"`{name}`" for name in VARIABLES[field.name])
    flag = f"`{field.flag}`" if field.flag else ""
    return (f"`{field.name}`", variables, flag, allowed(field), default, _FOLDER[field.folder], field.help)


def _table(head: tuple[str, ...], body: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *body]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
