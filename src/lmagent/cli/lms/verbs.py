"""Verbs: a table of what users of LM Studio's `lms` type, with our command for each. It is pure: nothing runs here.

The verbs and flags are those of github.com/lmstudio-ai/lms (0.0.47), and those that guides for its container show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from msgspec import Struct


class NoEquivalent(Exception):
    """A verb or flag that lmagent has nothing for; `instead` is the nearest command."""

    def __init__(self, text: str, instead: str) -> None:
        super().__init__(text)
        self.instead = instead


class Flag(Struct, frozen=True):
    """A flag of a verb.

    Attributes:
        to: our words for it, before its value; empty if it changes nothing here.
        value: it has a value.
        values: our words for its values, where they are others; a value that is not among them has no equivalent.
        instead: the nearest command, of a flag without an equivalent.
    """

    to: tuple[str, ...] = ()
    value: bool = False
    values: Mapping[str, tuple[str, ...]] | None = None
    instead: str = ""


class Verb(Struct, frozen=True):
    """A verb.

    Attributes:
        to: our command.
        flags: its flags besides `ANY`.
        argument: our words before its first argument.
        renamed: a text in its arguments, and ours for it.
        whole: the rest of the line is passed on unchanged.
        instead: the nearest command, of a verb without an equivalent.
    """

    to: tuple[str, ...] = ()
    flags: Mapping[str, Flag] = {}
    argument: tuple[str, ...] = ()
    renamed: tuple[str, str] | None = None
    whole: bool = False
    instead: str = ""


NOTHING, ALSO_VALUE = Flag(), Flag(value=True)
JSON = {"--json": Flag(("--json",))}
YES = {"-y": NOTHING, "--yes": NOTHING}

ANY = {
    "-h": Flag(("--help",)),
    "--help": Flag(("--help",)),
    "--verbose": NOTHING,
    "--quiet": NOTHING,
    "--log-level": ALSO_VALUE,
    "--host": Flag(
        value=True, instead="LLM_URL=http://HOST:1234/v1 lmagent: the agent can use another machine's server"
    ),
}
"""Flags of every verb."""

_FOUND = {"--port": Flag(value=True, instead="leave it out: the server of this machine is found by itself")}
_PORT = Flag(("--port",), value=True)
_LAYERS = "lmagent models load NAME --gpu-layers N: a number of layers, and not a share of them"
_SHOWN = "lmagent models list --json: `kind` says what a model is for"

_LOAD = {
    "--gpu": Flag(value=True, values={"max": ("--gpu-layers", "-1"), "off": ("--gpu-layers", "0")}, instead=_LAYERS),
    **dict.fromkeys(("-c", "--context-length"), Flag(("--context",), value=True)),
    "--ttl": Flag(("--ttl",), value=True),
    "--exact": Flag(instead="write the whole name: lmagent models list shows it"),
    "--identifier": Flag(value=True, instead="lmagent models list: a model has one name, its file's"),
    "--estimate-only": Flag(instead="lmagent models show NAME: its line `memory`"),
}
_GET = {
    "--gguf": NOTHING,
    "--mlx": Flag(instead="lmagent models pull OWNER/REPO: the engine runs GGUF files"),
    **dict.fromkeys(("-n", "--limit"), Flag(value=True, instead="lmagent models recommend")),
    "--always-show-all-results": Flag(instead="lmagent models recommend"),
    **dict.fromkeys(
        ("-a", "--always-show-download-options"),
        Flag(instead="lmagent models pull OWNER/REPO:QUANT; an unknown QUANT lists those that there are"),
    ),
}
_IMPORT = {
    **dict.fromkeys(("-c", "--copy"), Flag(("--copy",))),
    **dict.fromkeys(("-l", "--symbolic-link"), Flag(("--link",))),
    **dict.fromkeys(("-L", "--hard-link"), Flag(instead="lmagent models import FILE --link: a symbolic link")),
    "--user-repo": Flag(value=True, instead="lmagent models import FILE --name NAME: the library has no owners"),
    "--dry-run": Flag(instead="lmagent models import FILE --link: it leaves the file where it is"),
}
_START = {
    **dict.fromkeys(("-p", "--port"), _PORT),
    "--cors": Flag(("--cors",)),
    "--bind": Flag(("--bind",), value=True),
}
_STREAM = {
    **dict.fromkeys(
        ("-s", "--source"),
        Flag(value=True, values={"server": ()}, instead="lmagent server logs -f MODEL: the output of a model's engine"),
    ),
    "--filter": Flag(value=True, instead="lmagent --log-level trace: the agent's log then has what it sends and gets"),
    "--stats": Flag(instead="lmagent server stats"),
}
_CHAT = {
    **dict.fromkeys(("-p", "--prompt"), Flag(value=True, instead='lmagent run -m MODEL "TEXT"')),
    **dict.fromkeys(("-s", "--system-prompt"), Flag(value=True, instead="/set instructions TEXT, in the conversation")),
    "--stats": Flag(instead="/usage, in the conversation"),
    "--ttl": Flag(value=True, instead="lmagent models load NAME --ttl SECONDS"),
    "--dont-fetch-catalog": NOTHING,
}

_LISTED = JSON | {
    "--llm": Flag(instead=_SHOWN),
    "--embedding": Flag(instead=_SHOWN),
    "--detailed": NOTHING,
}

VERBS: dict[str, Verb] = {
    "ls": Verb(("models", "list"), _LISTED | _FOUND),
    "ps": Verb(("models", "ps"), JSON | _FOUND),
    "get": Verb(("models", "pull"), YES | _GET | _FOUND, renamed=("@", ":")),
    "download": Verb(("models", "pull"), YES | _GET | _FOUND, renamed=("@", ":")),
    "load": Verb(("models", "load"), YES | _LOAD | _FOUND),
    "unload": Verb(("models", "unload"), {**dict.fromkeys(("-a", "--all"), Flag(("--all",)))} | _FOUND),
    "import": Verb(("models", "import"), YES | _IMPORT),
    "chat": Verb(("chat",), YES | _CHAT | _FOUND, argument=("-m",)),
    "server start": Verb(("server", "start"), _START),
    "server stop": Verb(("server", "stop")),
    "server status": Verb(("server", "status"), JSON),
    "server logs": Verb(("server", "logs"), whole=True),
    "server stats": Verb(("server", "stats"), whole=True),
    "server models": Verb(("server", "models"), whole=True),
    "log stream": Verb(("server", "logs", "--follow"), JSON | _STREAM | _FOUND),
    "daemon up": Verb(("daemon", "up"), JSON),
    "daemon down": Verb(("daemon", "down"), JSON),
    "daemon status": Verb(("daemon", "status"), JSON),
    "daemon update": Verb(instead="update lmagent the way you installed it: pip, pipx or uv"),
    "status": Verb(("server", "status"), JSON | _FOUND),
    "version": Verb(("--version",)),
    "models": Verb(("models",), whole=True),
    "agent": Verb(("agent",), whole=True),
    "runtime": Verb(instead="lmagent models doctor: the engine and its devices; pip updates the engine"),
    "bootstrap": Verb(instead="lmagent lms-shim install"),
    "create": Verb(instead="lmagent agent init NAME: a project of an agent"),
    "dev": Verb(instead="lmagent agent run . --port 8000: serves the project in this folder"),
    "push": Verb(instead="lmagent agent build -o FILE.tar.gz: a file for others; lmagent has no hub"),
    "clone": Verb(instead="lmagent models pull OWNER/REPO: a model of Hugging Face; lmagent has no hub"),
    "login": Verb(instead="nothing: lmagent has no accounts"),
    "logout": Verb(instead="nothing: lmagent has no accounts"),
    "whoami": Verb(instead="nothing: lmagent has no accounts"),
    "link": Verb(instead="lmagent server start --bind ADDRESS, and LLM_URL on the other machine"),
    "launch": Verb(instead="lmagent acp: the agent of an editor"),
    "flags": Verb(instead="lmagent config: the settings"),
}
"""Our command for each verb."""

GROUPS = frozenset(name.split()[0] for name in VERBS if " " in name)
"""Verbs that are followed by another one."""


def translate(words: Sequence[str]) -> list[str]:
    """Return the arguments of lmagent that do what `lms` with these would. Raise NoEquivalent."""
    if words[0] in ("--version", "-v"):
        return ["--version"]
    name = " ".join(words[:2]) if words[0] in GROUPS else words[0]
    verb = VERBS.get(name)
    if verb is None:
        raise _unknown(name)
    if verb.instead:
        raise NoEquivalent(f"lms {name} has no equivalent in lmagent", verb.instead)
    rest = words[len(name.split()) :]
    return [*verb.to, *(rest if verb.whole else _translated(name, verb, rest))]


def _unknown(name: str) -> NoEquivalent:
    group = name.split()[0]
    if group in GROUPS:
        known = "|".join(one.split()[1] for one in VERBS if one.split()[0] == group)
        return NoEquivalent(f"lmagent has no lms {name}", f"lms {group} {known}")
    near = get_close_matches(name, VERBS, 1, 0.6)
    return NoEquivalent(f"lmagent has no lms {name}", f"did you mean lms {near[0]}?" if near else "lms lists the verbs")


def _translated(name: str, verb: Verb, words: Sequence[str]) -> list[str]:
    """Return our options, then the arguments."""
    options, arguments, flags, left = list[str](), list[str](), {**ANY, **verb.flags}, list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            arguments.append(word.replace(*verb.renamed) if verb.renamed else word)
            continue
        option, equals, value = word.partition("=")
        flag = flags.get(option)
        if flag is None:
            known = ", ".join(one for one in verb.flags if one.startswith("--")) or "none"
            raise NoEquivalent(f"lmagent has no lms {name} {option}", f"flags that it has: {known}")
        if flag.value and not equals:
            if not left:
                raise NoEquivalent(f"lms {name} {option} needs a value", f"lms {name} {option} VALUE")
            value = left.pop(0)
        options += _of_flag(f"lms {name} {option}", flag, value)
    return [*options, *(verb.argument if arguments else ()), *arguments]


def _of_flag(shown: str, flag: Flag, value: str) -> Sequence[str]:
    if flag.values is not None and value.lower() in flag.values:
        return flag.values[value.lower()]
    if flag.instead:
        shown = f"{shown} {value}" if flag.values is not None else shown
        raise NoEquivalent(f"{shown} has no equivalent in lmagent", flag.instead)
    return (*flag.to, value) if flag.value and flag.to else flag.to


def table() -> list[tuple[str, str]]:
    """Return the verbs that have an equivalent, each with our command."""
    return [(f"lms {name}", f"lmagent {' '.join(verb.to)}") for name, verb in VERBS.items() if verb.to]
