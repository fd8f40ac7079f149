"""What a command makes other programs run although it is no wrapper: git, launchers such as `uv run`, variables.

Only rules that deny or ask look at it: what is listed here is allowed by nothing that does not allow the command
itself, see `sharp.py` and `patterns.is_dangerous`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lmagent.engine.shellline.launchers import inner_commands, operands
from lmagent.engine.shellline.words import Word, names_in
from lmagent.engine.shellline.wrappers import SHELLS


class Besides(NamedTuple):
    """Commands, texts of a shell, and why there may be some that nobody can know."""

    inner: tuple[tuple[Word, ...], ...] = ()
    texts: tuple[str, ...] = ()
    hides: str = ""


# Whose value is text that a shell runs. Others that change what runs, such as PATH, change what a name means.
_TEXT = re.compile(
    r"\w*(?:PAGER|EDITOR|VISUAL|BROWSER|ASKPASS|COMMAND|RSH|LESSOPEN|LESSCLOSE)|PS4|GIT_SSH|GIT_EXTERNAL_DIFF"
)
_FILE = frozenset(("BASH_ENV", "ENV"))
_OPAQUE = re.compile(
    r"GIT_CONFIG(?:_(?:COUNT|PARAMETERS|KEY_\d+|VALUE_\d+))?|GIT_EXEC_PATH|BASH_FUNC_.*|SHELLOPTS|BASHOPTS"
)

# Keys that cannot make git run anything; all others may.
_SAFE_KEY = re.compile(
    r"(?:color|user|author|committer|advice|log|status|push|pull|fetch|branch|safe|gc|pack|index|column|i18n|blame|stash"
    r"|grep|rerere|apply|feature|tag|format|commit|versionsort|init\.defaultbranch|http|protocol\.version|help\.autocorrect"
    r"|rebase\.(?:auto\w+|stat|updaterefs|missingcommitscheck)|merge\.(?:conflictstyle|ff|renames?\w*|log|stat|verbosity)"
    r"|diff\.(?:renames?|renamelimit|algorithm|context|noprefix|mnemonicprefix|color\w+|wserrorhighlight|submodule|stat\w*)"
    r"|core\.(?:quotepath|autocrlf|eol|safecrlf|filemode|ignorecase|longpaths|symlinks|abbrev|bare|whitespace|precomposeunicode"
    r"|untrackedcache|preloadindex|compression|bigfilethreshold|excludesfile|sharedrepository|logallrefupdates|commentchar))"
    r"(?:\..*)?",
    re.IGNORECASE,
)  # fmt: skip
_SHELL_KEY = re.compile(
    r"core\.(?:pager|editor|sshcommand|askpass)|pager\..*|sequence\.editor|diff\.external", re.IGNORECASE
)
_BOOLEAN = frozenset(("", "true", "false", "yes", "no", "on", "off", "0", "1"))
_GIT_VALUED = names_in("-C --git-dir --work-tree --namespace --super-prefix")
_GIT_RUNS = names_in(
    "--exec --extcmd --open-files-in-pager --upload-pack --receive-pack --sendmail-cmd --to-cmd --cc-cmd --header-cmd "
    "--smtp-server --setup --env-filter --tree-filter --index-filter --parent-filter --msg-filter --commit-filter "
    "--tag-name-filter --subdirectory-filter"
)
_GIT_SHORT = {"rebase": "x", "difftool": "x", "grep": "O", "clone": "u"}


def besides(words: Sequence[Word]) -> Besides | None:
    """What a command runs because its words say so. The first word is known."""
    name = words[0].text.rsplit("/", 1)[-1]
    if name == "git":
        return _git(words)
    if name in SHELLS or name in ("source", "."):
        return _script(words)
    inner, texts, hides = inner_commands(name, words)
    return Besides(inner, texts, hides) if inner or texts or hides else None


def _script(words: Sequence[Word]) -> Besides | None:
    """A script that a shell reads is a command of that name."""
    places = operands([word.text for word in words], 1)
    if not places or any(re.match(r"-\w*c", word.text) for word in words[1 : places[0]]):
        return None
    return Besides(tuple(tuple(words[place:]) for place in places[:4] if words[place].known))


def told(name: str, value: str) -> Besides | None:
    """What a variable makes programs run."""
    name = name.partition("[")[0]
    if name in _FILE:
        plain = re.fullmatch(r"[\w./+@:-]*", value) and not value.startswith(("/dev/", "/proc/"))
        return None if plain else Besides(hides=f"{name} is text that every shell runs first")
    if _OPAQUE.fullmatch(name):
        return Besides(hides=f"{name} changes what programs run")
    if not _TEXT.fullmatch(name):
        return None
    if found := re.fullmatch(r'"([^"\\]*)"', value):
        value = found[1]
    return Besides(texts=(value,)) if value.strip() else None


def _git(words: Sequence[Word]) -> Besides | None:
    found = _Git(words)
    found.read()
    return Besides(tuple(found.inner), tuple(found.texts), found.hides)


class _Git:
    """Reads the words of a git command."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words
        self.inner: list[tuple[Word, ...]] = []
        self.texts: list[str] = []
        self.hides = ""
        self.aliases: list[tuple[str, str]] = []

    def read(self) -> None:
        """Options of git itself, then those of its command."""
        at, words = 1, self.words
        while at < len(words) and (words[at].text.startswith("-") or not words[at].known):
            word, following = words[at], words[at + 1] if at + 1 < len(words) else None
            text = word.text
            if not word.known and not text.startswith("-"):
                self.hides = self.hides or "git's command is only known at run time"
                return
            if text in ("-c", "--config-env"):
                self.setting(following, known=text == "-c")
            elif text.startswith(("--config-env=", "--exec-path=")):
                self.hides = self.hides or "git's programs are only known at run time"
            at += 2 if text in ("-c", "--config-env") or text in _GIT_VALUED else 1
        for key, value in self.aliases:
            self.alias(key, value, words[at + 1 :])
        if at < len(words):
            self.command(words[at].text, words[at + 1 :])

    def setting(self, word: Word | None, *, known: bool = True) -> None:
        """`key=value` of -c."""
        if word is None:
            return
        key, _, value = word.text.partition("=")
        if not word.known and (word.loose or "$" in key or "`" in key):
            self.hides = self.hides or "git's settings are only known at run time"
        elif _SAFE_KEY.fullmatch(key) or (known and word.known and value.lower() in _BOOLEAN):
            return
        elif known and word.known and key.lower().startswith("alias."):
            self.aliases.append((key, value))
        elif known and word.known and _SHELL_KEY.fullmatch(key):
            self.texts.append(value)
        else:
            self.hides = self.hides or f"the setting {key[:40]} may make git run something"

    def alias(self, _key: str, value: str, rest: Sequence[Word]) -> None:
        """An alias is git's own words, or with `!` a text for a shell; further arguments follow it."""
        if value.startswith("!"):
            shown = " ".join(shlex.quote(word.text) if word.known else '"$@"' for word in rest)
            self.texts.append(f"{value[1:]} {shown}")
            return
        try:
            self.inner.append((Word("git"), *(Word(part) for part in shlex.split(value)), *rest))
        except ValueError:
            self.hides = self.hides or "git's alias is not understood"

    def command(self, name: str, rest: Sequence[Word]) -> None:
        """What a command of git runs."""
        plain = [word for word in rest if not word.text.startswith("-")]
        if name == "config":
            self.configure(rest, plain)
        elif name == "submodule" and plain and plain[0].text == "foreach":
            self.text(" ".join(word.text for word in plain[1:]), known=all(word.known for word in plain))
        elif name == "bisect" and plain and plain[0].text == "run":
            self.inner.append(tuple(rest[rest.index(plain[0]) + 1 :]))
        elif name == "clone":
            for word, following in _pairs(rest):
                if word.text in ("-c", "--config"):
                    self.setting(following)
                elif found := re.match(r"--config=(.*)", word.text, re.DOTALL):
                    self.setting(word._replace(text=found[1]))
        for value in _values(rest, _GIT_SHORT.get(name, "")):
            self.text(value.text, known=value.known)
        for word in rest:
            if word.text.startswith("ext::"):
                self.text(word.text[5:], known=word.known)

    def text(self, text: str, *, known: bool) -> None:
        """A text that git hands to a shell."""
        if known:
            self.texts.append(text)
        else:
            self.hides = self.hides or "git runs text that is only known at run time"

    def configure(self, rest: Sequence[Word], plain: Sequence[Word]) -> None:
        """A setting stays: what git is told to run by it will run with a line that does not show it."""
        if plain and plain[0].text in ("get", "list", "unset", "get-all", "get-regexp", "remove-section"):
            return
        if any(word.text.startswith(("--get", "--list", "--unset", "--remove")) or word.text == "-l" for word in rest):
            return
        keys = [word for word in plain if not word.known or ("." in word.text and not _SAFE_KEY.fullmatch(word.text))]
        if len(plain) > 1 and keys:
            self.hides = self.hides or f"the setting {keys[0].text[:40]} may make git run something"


def _pairs(words: Sequence[Word]) -> Iterator[tuple[Word, Word | None]]:
    for at, word in enumerate(words):
        yield word, words[at + 1] if at + 1 < len(words) else None


def _values(rest: Sequence[Word], letter: str) -> Iterator[Word]:
    """The values of options that are text for a shell; a long name may be abbreviated."""
    for word, following in _pairs(rest):
        name, equals, value = word.text.partition("=")
        if word.text.startswith("--") and len(name) > 3 and any(option.startswith(name) for option in _GIT_RUNS):
            if equals:
                yield word._replace(text=value)
            elif following is not None:
                yield following
        elif letter and re.match(rf"-[A-Za-z]*{letter}", word.text) and not word.text.startswith("--"):
            attached = word.text.partition(letter)[2]
            if attached:
                yield word._replace(text=attached)
            elif following is not None and letter != "O":
                yield following
