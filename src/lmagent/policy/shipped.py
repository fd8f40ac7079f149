"""Shipped rules: calls that are refused or asked about unless the user turns that off (the setting `shipped_rules`).

They guard against a model's mistakes, not against an attacker: the sandbox and `/undo` cover programs whose actions no
rule can see. Before a file with secrets is read, the user is asked, so that no secret gets into a prompt unseen; an
allow rule of the user covers it. Commands that wipe a disk, the home folder or the workspace are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

SECRET_FILES = (
    "effect:read(.env)",
    "effect:read(.env.{local,development,production,staging,test})",
    "effect:read(*.{pem,key})",
    "effect:read(id_{rsa,dsa,ecdsa,ed25519}*)",
    "effect:read(credentials{,.json,.toml,.yaml,.yml,.ini,.xml,.csv,.db})",
    "effect:read(.netrc)",
)
"""Rules on paths, in the form of `permission_ask`."""

_WORTH_A_LOOK = re.compile(r"mkfs|\bdd\b|\brm\b|\(\s*\)\s*\{")
"""Lines without any of these need not be parsed."""

_FORK_BOMB = re.compile(r"([\w:]+)\s*\(\s*\)\s*\{[^}]*?\1\s*\|\s*\1\s*&")

_MAX_WORDS = 200
_HARMLESS_DEVICES = ("of=/dev/null", "of=/dev/stdout", "of=/dev/stderr")


@lru_cache(maxsize=2)
def ruin(command: str, workspace: str) -> str:
    """Return the damage of a shell line, as a phrase that follows "it would"; empty for none."""
    if not _WORTH_A_LOOK.search(command):
        return ""
    if _FORK_BOMB.search(command):
        return "start processes without end"
    from lmagent.policy.commands import read  # few lines need it

    line = read(command)
    found = [item.argv for item in (*line.commands, *line.possible)]
    if line.unclear:  # its text, cut at operators, with each word as a possible name
        for piece in re.split(r"[;&|()\n`<>]", re.sub(r"\\\n|[\\\"'{}]", "", command)):
            words = tuple(piece.split()[:_MAX_WORDS])
            found += [words[at:] for at, word in enumerate(words) if _WORTH_A_LOOK.search(word)]
    return next((what for argv in found if (what := _ruin(argv, workspace))), "")


def _ruin(argv: Sequence[str], workspace: str) -> str:
    name, arguments = (argv[0].rpartition("/")[2], argv[1:]) if argv else ("", ())
    if name == "mkfs" or name.startswith("mkfs."):
        return "format a disk"
    if name == "dd":
        devices = [word for word in arguments if word.startswith("of=/dev/") and word not in _HARMLESS_DEVICES]
        return "overwrite a disk" if devices else ""
    options = [word for word in arguments if word.startswith("-")]
    recursive = any(word == "--recursive" or re.match(r"-[a-zA-Z]*[rR]", word) for word in options)
    if name == "rm" and recursive and any(_is_all(word, workspace) for word in arguments if word not in options):
        return "delete the whole disk, home folder or workspace"
    return ""


def _is_all(word: str, workspace: str) -> bool:
    """Return whether a word names the disk's root, the home folder, the workspace or its parent folder."""
    plain = re.sub(r"[\"'{}]", "", word).replace("$HOME", "~").replace("$PWD", ".").removesuffix("*")
    return (plain.rstrip("/") or "/") in {"/", "~", ".", "..", workspace.rstrip("/")} and word != "*"
