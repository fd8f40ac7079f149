"""Whether a command has a sharp word (`sharp.py`) that the pattern of an allow rule does not spell out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from lmagent.engine.shellline.launchers import FREE, launched
from lmagent.engine.shellline.segments import Segment
from lmagent.engine.shellline.sharp import SHARP, Sharp
from lmagent.engine.shellline.unwrap import base_name
from lmagent.engine.shellline.variables import is_dangerous
from lmagent.engine.shellline.words import names_in

_MAX_LAUNCHES, _MAX_PLACES = 4, 5
_EXACT = frozenset(("--list",))  # whole names that are the beginning of sharp ones
_GIT_COMMANDS = (
    "config", "filter-branch", "difftool", "mergetool", "clone", "bisect run", "submodule foreach", "hook", "daemon",
    "remote-ext", "remote-fd", "send-email", "merge-index", "instaweb", "web--browse", "for-each-repo", "shell",
    "fast-import", "p4", "svn", "cvsserver", "cvsimport", "imap-send", "credential", "citool", "gui", "bugreport",
    "diagnose",
)  # fmt: skip
_GIT_OPTIONS = {"archive": "-o --remote", "format-patch": "-o", "bundle": "create", "rebase": "-i --interactive"}
_GIT_QUIET = frozenset(("--no-pager", "-P", "--version", "--help", "--no-optional-locks", "--literal-pathspecs"))
# Where a word may be the name of a file to write: so many are inputs.
_INPUTS = {"uniq": 1, "xxd": 1}
# Addresses, then a command that neither runs nor reads nor writes anything, with its own arguments.
# A bracket must not hold the mark that ends the text: programs differ in whether it ends there.
_PLAIN, _ANY = r"(?!(?P={0}))[^\[\\\n]|\\.|\[\^?\]?(?:(?!(?P={0}))[^\]\\\n]|\\\w)*\]", r"(?!(?P={0}))[^\\\n]|\\."
_S, _Y = (f"(?:{_PLAIN})*(?P={{0}})(?:{_ANY})*(?P={{0}})".format(name) for name in "sy")
_SED_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\[\\\n]|\\.|\[\^?\]?(?:[^/\]\\\n]|\\\w)*\])*/[IM]*)"
_SED_ONE = re.compile(
    rf"(?:{_SED_ADDRESS}(?:\s*,\s*[+~]?{_SED_ADDRESS})?)?\s*!*\s*(?:\{{|(?:[=dDgGhHnNpPxFz]|[qQl]\s*\d*|:\s*\w+|[btT]\s*\w*"
    rf"|s(?P<s>[^\w\s\\\[]){_S}[gpiIMm\d]*|y(?P<y>[^\w\s\\\[]){_Y}"
    r"|[aic](?:\\\n|\\?[ \t]*)[^\n\\]*(?=\n|$))\s*(?:(?=[;\n}#])|$))",
    re.DOTALL,
)  # fmt: skip
_SED_BETWEEN = re.compile(r"(?:[\s;}]|#[^\n]*)*")
_AWK = re.compile(r"system|getline|(?<!\|)\|(?!\|)|print.*>|@\s*(?:load|include|namespace)|@\w|/inet", re.DOTALL)


def is_sharp(segment: Segment, spelled: int) -> bool:
    """Whether a word that the pattern does not spell out makes the program run, write or delete something else."""
    return _is_sharp(_Command(segment.argv, frozenset(segment.loose), frozenset(segment.unknown), spelled), 0)


class _Command(NamedTuple):
    """Words; which of them may be options or several, or are unknown; how many the pattern spells out."""

    argv: tuple[str, ...]
    loose: frozenset[int]
    unknown: frozenset[int]
    spelled: int

    def inner(self, at: int) -> _Command:
        """The command that begins further on."""
        loose = frozenset(place - at for place in self.loose if place >= at)
        unknown = frozenset(place - at for place in self.unknown if place >= at)
        return _Command(self.argv[at:], loose, unknown, max(0, self.spelled - at))


def _is_sharp(command: _Command, launches: int) -> bool:
    name, argv = base_name(command.argv[0]), command.argv
    if _launches_sharp(name, command, launches):
        return True
    sharp = SHARP.get(name) or SHARP.get(re.sub(r"[-.]?\d[\d.]*$", "", name))
    if sharp is None:
        return False
    if name == "git" and _is_sharp_git(argv, command.spelled):
        return True
    if name in _INPUTS and sum(not word.startswith("-") for word in argv[1:]) > _INPUTS[name]:
        return True
    if name in _TEXTS and _has_sharp_text(name, command):
        return True
    end = argv.index("--") if "--" in argv and name != "find" else len(argv)
    if sharp.head:
        end = min(end, _script(argv))
    if any(at < end or (at == len(argv) and end == len(argv)) for at in command.loose):
        return True
    unspelled = range(max(1, command.spelled), len(argv))
    if sharp.first and 1 in unspelled and not argv[1].startswith("-") and _in_cluster(argv[1], sharp, ""):
        return True
    return any(
        (at < end and is_option(argv[at], sharp)) or (sharp.word is not None and _is_word(argv[at], sharp.word))
        for at in unspelled
    )


def _launches_sharp(name: str, command: _Command, launches: int) -> bool:
    """A launcher's own options, and the words of what it starts."""
    found = launched(name, command.argv)
    if found is None or name in FREE:
        return False
    launcher, start, places = found
    if launches >= _MAX_LAUNCHES or len(places) > _MAX_PLACES:
        return True
    own = Sharp(names_in(launcher.sharp), whole=True)
    last = places[-1] if places else len(command.argv)
    if any(is_option(word, own) for word in command.argv[max(start, command.spelled) : last]):
        return True
    if launcher.sharp and any(at <= last for at in command.loose):
        return True
    return any(_is_sharp(command.inner(place), launches + 1) for place in places)


def is_option(word: str, sharp: Sharp) -> bool:
    """Whether a word is one of the sharp options, however it is written."""
    if not word.startswith("-") or word == "-":
        return False
    name = word.partition("=")[0]
    if name in _EXACT:
        return False
    long = word.startswith("--")
    for option in sharp.options:
        if option.endswith("*"):
            stem = option[:-1].lstrip("-")
            if name.lstrip("-").startswith(stem) or (long and len(name) > 2 and stem.startswith(name[2:])):
                return True
        elif "*" in option:
            if fnmatchcase(name, option):
                return True
        elif (name.lstrip("-") == option.lstrip("-") and (sharp.whole or len(option) > 2 or not long)) or (
            long and not sharp.whole and len(name) > 2 and option.startswith(name)
        ):
            return True
    return not long and (_attached(word, sharp) if sharp.whole else _in_cluster(word[1:], sharp, sharp.valued))


def _attached(word: str, sharp: Sharp) -> bool:
    """`-pvalue`: where options are whole words, those of one letter still may have a value at them."""
    return len(word) > 2 and any(
        option == word[:2] for option in sharp.options if len(option) == 2 and option[1] in "pcCfi"
    )


def _in_cluster(letters: str, sharp: Sharp, valued: str) -> bool:
    for letter in letters:
        if f"-{letter}" in sharp.options:
            return True
        if letter in valued:
            return False
    return False


def _is_word(word: str, form: re.Pattern[str]) -> bool:
    found = form.fullmatch(word)
    if found is None:
        return False
    name = found.groupdict().get("assigned")
    return name is None or "$" in word or is_dangerous(name)


def _script(argv: Sequence[str]) -> int:
    """Where the first operand stands that cannot be the value of an option."""
    for at in range(1, len(argv)):
        if not argv[at].startswith("-") and (at == 1 or not argv[at - 1].startswith("-") or "=" in argv[at - 1]):
            return at
    return len(argv)


def _is_sharp_git(argv: Sequence[str], spelled: int) -> bool:
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] not in _GIT_QUIET and argv[at] != "-C" and at >= spelled:
            return True
        at += 2 if argv[at] in ("-C", "-c") else 1
    options = Sharp(names_in(_GIT_OPTIONS.get(argv[at], ""))) if at < len(argv) else Sharp()
    if any(is_option(word, options) or word in options.options for word in argv[max(at + 1, spelled) :]):
        return True
    if at < spelled:
        return False
    command = " ".join(argv[at : at + 2])
    return any(command == one or command.startswith(one + " ") for one in _GIT_COMMANDS)


def _has_sharp_text(name: str, command: _Command) -> bool:
    """`sed` and `awk`: their text is harmless, or spelled out; one that only the run will tell is neither."""
    valued, given = _TEXTS[name]
    argv, texts, operand, at = command.argv, list[tuple[int, str]](), -1, 1
    ended = False
    while at < len(argv):
        word = argv[at]
        if ended or not word.startswith("-") or word == "-":
            operand = at if operand < 0 else operand
        elif word == "--":
            ended = True
        elif word.startswith("--"):
            long, equals, value = word.partition("=")
            if any(one.startswith(long) for one in given):
                at += not equals
                texts.append((at, value if equals else "".join(argv[at : at + 1])))
            elif not equals and long in ("--field-separator", "--assign", "--line-length"):
                at += 1
        elif found := re.match(rf"-[^{valued}]*([{valued}])(.*)", word, re.DOTALL):
            at += not found[2]
            if found[1] == "e":
                texts.append((at, found[2] or "".join(argv[at : at + 1])))
        at += 1
    if not texts and operand > 0:
        texts = [(operand, argv[operand])]
    last = max((at for at, _ in texts), default=len(argv))
    if any(command.spelled <= at <= last for at in command.unknown):
        return True
    harmless = _is_harmless_sed if name == "sed" else _is_harmless_awk
    return any(not harmless(text) for at, text in texts if at >= command.spelled)


def _is_harmless_sed(script: str) -> bool:
    at = 0
    while True:
        at = found.end() if (found := _SED_BETWEEN.match(script, at)) else at
        if at >= len(script):
            return True
        one = _SED_ONE.match(script, at)
        if one is None:
            return False
        at = one.end()


def _is_harmless_awk(script: str) -> bool:
    return _AWK.search(script) is None


_TEXTS = {
    "sed": ("el", ("--expression",)), "awk": ("Fve", ("--source",)), "gawk": ("Fve", ("--source",)),
    "mawk": ("Fve", ("--source",)), "nawk": ("Fve", ("--source",)),
}  # fmt: skip
"""Letters of options with a value (`e`: it is text of a program), and long options whose value is such text."""
