"""Shipped rules: what is asked about or refused unless the user says otherwise (the setting `shipped_rules`).

They guard against the slip of a model, not against an attacker: the sandbox and `/undo` hold where no rule can see what
a program does. Files that hold secrets are asked about before they are read, so that none gets into a prompt unseen;
an allow rule of the user's covers them. Commands that wipe a disk, the home folder or the workspace are refused.
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
"""Rules on paths, as `permission_ask` has them."""

_WORTH_A_LOOK = re.compile(r"mkfs|\bdd\b|\brm\b|\(\s*\)\s*\{")
"""Lines without any of these need not be parsed."""

_FORK_BOMB = re.compile(r"([\w:]+)\s*\(\s*\)\s*\{[^}]*?\1\s*\|\s*\1\s*&")

_HARMLESS_DEVICES = ("of=/dev/null", "of=/dev/stdout", "of=/dev/stderr")


@lru_cache(maxsize=2)
def ruin(command: str, workspace: str) -> str:
    """What a shell line would ruin, in words that end "it would …"; empty if nothing.

    Args:
        command: the line.
        workspace: its absolute path.
    """
    if not _WORTH_A_LOOK.search(command):
        return ""
    if _FORK_BOMB.search(command):
        return "start processes without end"
    from lmagent.engine.shellline.patterns import parse  # few lines are worth it

    return next((what for segment in parse(command).segments if (what := _ruin(segment.argv, workspace))), "")


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
    """Whether a word names the disk's root, the home folder, the workspace or the folder that it lies in."""
    plain = re.sub(r"[\"'{}]", "", word).replace("$HOME", "~").replace("$PWD", ".").removesuffix("*")
    return (plain.rstrip("/") or "/") in {"/", "~", ".", "..", workspace.rstrip("/")} and word != "*"
