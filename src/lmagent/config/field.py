"""Field: what can be said about one setting."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from lmagent.config.settings import DEFAULTS

Kind = Literal["text", "secret", "path", "url", "integer", "number", "switch", "presence", "choice", "rules"]

FolderRule = Literal["free", "stricter", "smaller", "endpoint", "trusted", "elsewhere"]
"""What a file that lies in a folder nobody vouched for (its `.lmagent/config.toml`, its `.env`) may do:

free       set it
stricter   move the permission mode towards manual
smaller    lower a budget
endpoint   name a server on this machine, unless a key of the user's own would go there; a key only for such a server
trusted    nothing, until the folder is trusted
elsewhere  nothing, ever: it is decided before the file is read, or protects the user from it
"""


class Field(Struct, frozen=True):
    """One setting.

    Attributes:
        name: the key in `config.toml` and the attribute of `Settings`.
        kind: what it may be.
        help: one line for the documentation.
        env: its own environment variable. Other names that are accepted stand in `names.SEED_NAMES`.
        flag: the command line flag that sets it, where there is one.
        choices: the values of a choice, from the loosest to the strictest.
        low: the least value, inclusive.
        high: the greatest value, inclusive.
        optional: "none" and -1 are accepted and mean no value.
        folder: what a file in an untrusted folder may do to it.
    """

    name: str
    kind: Kind
    help: str
    env: str
    flag: str = ""
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    optional: bool = False
    folder: FolderRule = "free"

    @property
    def default(self) -> Any:
        """The value when nothing sets it."""
        return DEFAULTS[self.name]

    @property
    def secret(self) -> bool:
        """Whether its value must never be shown."""
        return self.kind == "secret"
