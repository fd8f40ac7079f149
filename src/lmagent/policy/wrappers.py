"""Programs that run other programs: where the inner command begins, and which programs are always unclear."""

from __future__ import annotations

import re
from typing import NamedTuple


def names_in(text: str) -> frozenset[str]:
    """Return the words of a text: long tables of names stay readable."""
    return frozenset(text.split())


class Word(NamedTuple):
    """A word of a command; `text` is its value, or its source if the value is known only at run time.

    An unknown word is `loose` if it may begin with a dash or become several words. `globs`: it is built of wildcards
    and braces alone.
    """

    text: str
    known: bool = True
    loose: bool = False
    globs: bool = False


Words = tuple[Word, ...]
REST = Word("", known=False, loose=True)
"""Further words of unknown number."""


class Inner(NamedTuple):
    """The commands that a command runs: itself (`kept`), commands that surely run, and a script for a shell.

    For rules that deny: commands that may run, and the wrapper around the inner command. `assigned` sets variables;
    `unclear` says why this may not be all.
    """

    kept: Words = ()
    commands: tuple[Words, ...] = ()
    maybe: tuple[Words, ...] = ()
    text: str = ""
    assigned: Words = ()
    around: Words = ()
    unclear: str = ""


SHELLS = names_in("bash sh dash zsh ksh ash mksh rbash source .")
_ONLY_BASH = re.compile(r"\[\[|\(\(|&>|\|&|\+=|<<<|[<>]\(|\b(?:function|select|coproc)\b")

# Letters of options without a value, letters of options with one, and the number of operands before the inner command.
_WRAPPERS = {
    "sudo": ("AbBEHnPSk", "CDghpRrTtUu", 0), "doas": ("n", "uC", 0), "timeout": ("v", "ks", 1), "nice": ("", "n", 0),
    "ionice": ("t", "cn", 0), "nohup": ("", "", 0), "setsid": ("cfw", "", 0), "stdbuf": ("", "ioe", 0),
    "time": ("pv", "", 0), "command": ("p", "", 0), "builtin": ("", "", 0), "exec": ("cl", "a", 0),
    "xargs": ("0rtpx", "ILnPsEda", 0), "env": ("i", "u", 0),
}  # fmt: skip

# They run text, read commands, or change the meaning of names; the last row has keywords of the shell's grammar.
_UNCLEAR = names_in(
    "eval trap coproc su watch busybox toybox mapfile readarray jobs let alias unalias enable hash shopt bind complete "
    "compgen compopt fc parallel flock strace ltrace chroot unshare nsenter script systemd-run taskset chrt numactl "
    "prlimit setarch linux64 linux32 unbuffer runuser pkexec setpriv fakeroot eatmydata torsocks proxychains xvfb-run "
    "rlwrap entr caffeinate firejail bwrap dbus-run-session fish csh tcsh start-stop-daemon capsh expect at batch "
    "crontab choom uclampset sg newgrp coreutils toolbox tmux screen dtach abduco "
    "! { } [[ ]] if then else elif fi do done case esac while until for in function select"
)

LAUNCHERS = {
    **dict.fromkeys(("uvx", "npx", "bunx", "pnpx"), names_in("")),
    **dict.fromkeys(names_in("uv poetry pipenv pdm hatch rye pipx conda rustup coverage dotenv"), names_in("run")),
    **dict.fromkeys(names_in("bundle direnv rbenv pyenv asdf npm mise pnpm"), names_in("exec x dlx")),
    **dict.fromkeys(("bun", "yarn"), names_in("exec x dlx run")),
}
"""Programs that start another program after one of these words, or always if they have none."""
_LAUNCHED_TEXT = re.compile(r"-c|--c(?:all|ommand).*|--shell-mode")
_MAX_LAUNCHED, _MAX_WORDS = 12, 500

RUN_BY_PROGRAMS = re.compile(
    r"\w*(?:PAGER|EDITOR|VISUAL|BROWSER|ASKPASS|COMMAND|RSH|LESSOPEN|LESSCLOSE)|PS4|GIT_\w+|BASH\w*|ENV|SHELLOPTS"
)
"""Variables whose value is a command, or decides on one."""

# Words of a git command, each preceded by a NUL, with which git may run another program.
_GIT_RUNS = re.compile(
    r"(?:\0-C\0[^\0]*|\0-(?!C\0)[^\0]*)*\0(?:-c|--config|--exec-path).*"
    r"|(?:.*\0)?(?:(?:rebase|difftool)\0(?:.*\0)?-\w*x|grep\0(?:.*\0)?-\w*O|clone\0(?:.*\0)?-\w*[uc]"
    r"|submodule\0(?:.*\0)?foreach|bisect\0(?:.*\0)?run|--(?:exe|extc|open|upl|rece|sendm|to-c|cc-c|header-c|smtp|setu|(?:\w+-)+filter)"
    r"|ext::|--config|config\0(?!(?:.*\0)?(?:--(?:get|list|unset|remove)|-l)|(?:get|list|unset)\b|(?:--\w+\0)*(?:[\w.]+$"
    r"|(?i:user|color|init|push|pull)\.))).*",
    re.DOTALL,
)


def base_name(name: str) -> str:
    return name.rpartition("/")[2]


def is_bare(name: str) -> bool:
    """Return whether a command of this name is the system's program, not a file of the workspace."""
    return "/" not in name or name.rpartition("/")[0] in ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin")


def unwrap(words: Words) -> Inner:
    """Return the inner commands of a command. Its first word is known."""
    name = base_name(words[0].text)
    if name in SHELLS:
        found = _shell(name, words)
    elif name in _UNCLEAR or (name == "git" and _is_unclear_git(words)):
        found = Inner(words, unclear=f"what {name} runs is not looked into")
    elif name == "find":
        found = _find(words)
    elif name in LAUNCHERS:
        found = _launched(name, words, LAUNCHERS[name])
    elif name in _WRAPPERS:
        found = _wrapped(name, words)
    else:
        return Inner(words)
    return found if is_bare(words[0].text) else found._replace(kept=words)


def _not_read(name: str, words: Words) -> Inner:
    return Inner(words, unclear=f"what {name} would run is not understood")


def _is_option(word: Word) -> bool:
    return word.known and word.text.startswith(("-", "+"))


def _launched(name: str, words: Words, starts: frozenset[str]) -> Inner:
    """Return the commands that a launcher, or a shell with a script, may start.

    The operand after an option may be the option's value, or the command.
    """
    reads = name in ("npx", "npm", "pnpm", "pnpx", "mise")
    if len(words) > _MAX_WORDS or (reads and any(_LAUNCHED_TEXT.fullmatch(word.text) for word in words)):
        return _not_read(name, words)
    found, started = list[Words](), not starts
    for at, word in enumerate(words[1:], 1):
        if _is_option(word):
            continue
        found.append(words[at:])
        if not word.known or len(found) > _MAX_LAUNCHED:
            return Inner(words, maybe=tuple(found[:-1]), unclear=f"what {name} starts is known only at run time")
        if started and not _is_option(words[at - 1]):
            break
        started = started or word.text in starts
    return Inner(words, maybe=tuple(found))


def _wrapped(name: str, words: Words) -> Inner:
    flags, valued, operands = _WRAPPERS[name]
    if len(words) == 1 or (name == "command" and words[1].text in ("-v", "-V")):
        return Inner(words)
    at, place = 1, ""
    while at < len(words) and words[at].text.startswith("-") and words[at].text != "--":
        found = re.fullmatch(rf"-(?:[{flags}\0]*([{valued}\0])(.*)|[{flags}\0]+)", words[at].text, re.DOTALL)
        if found is None or not words[at].known:
            return _not_read(name, words)
        if found[1] == "I":
            place = found[2] or "".join(word.text for word in words[at + 1 : at + 2])
        at += 2 if found[1] and not found[2] else 1
    at += at < len(words) and words[at].text == "--"
    first = at = at + operands
    while name in ("env", "sudo", "doas") and at < len(words) and "=" in words[at].text:
        at += 1
    sure = all(word.known for word in words[1:first]) and not any(word.loose for word in words[: at + 1])
    if not sure or at >= len(words) or (name == "time" and "=" in words[at].text):
        return _not_read(name, words)
    inner = words[at:]
    if name == "xargs":
        inner = tuple(_filled(word, place) for word in inner) if place else (*inner, REST)
    return Inner(words if name in ("sudo", "doas") else (), (inner,), assigned=words[first:at], around=words)


def _filled(word: Word, place: str) -> Word:
    return Word(word.text, known=False, loose=True) if place in word.text else word


def _shell(name: str, words: Words) -> Inner:
    """Read `sh -c text` and `sh script`; a shell that reads its commands from elsewhere is unclear."""
    at = 1
    while at < len(words) and re.fullmatch(r"-[eulx]+", words[at].text):
        at += 1
    if any(not word.known for word in words[1 : at + 1]) or at >= len(words):
        return _not_read(name, words) if len(words) > 1 or name not in ("source", ".") else Inner(words)
    operand = words[at].text
    if re.fullmatch(r"-[eulx]*c", operand) and name not in ("source", "."):
        text = words[at + 1] if at + 1 < len(words) else REST
        if not text.known or text.text[:1] in ("-", "+") or (name != "bash" and _ONLY_BASH.search(text.text)):
            return _not_read(name, words)
        return Inner(text=text.text, around=words)
    if operand.startswith(("-", "+", "/dev/", "/proc/")):
        return _not_read(name, words)
    return _launched(name, words, frozenset())


def _find(words: Words) -> Inner:
    """Read `find … -exec command ;`. Rules treat `-delete` as `rm -r` of unnamed files."""
    texts = [word.text for word in words]
    if any(text.startswith(("-fprint", "-fls")) for text in texts):
        return _not_read("find", words)
    at = next((at for at, text in enumerate(texts) if text in ("-exec", "-execdir", "-ok", "-okdir")), 0)
    inner = tuple(_filled(word, "{}") for word in words[at + 1 : -1])
    ended = texts[-1] == ";" or texts[-2:] == ["{}", "+"]
    if at and (not ended or ";" in texts[:-1] or not inner):
        return _not_read("find", words)
    deleted = ((Word("rm"), Word("-r"), REST),) if "-delete" in texts else ()
    return Inner(words[:at] if at else words, (*([inner] if at else []), *deleted))


def _is_unclear_git(words: Words) -> bool:
    at = 1
    while at < len(words) and _is_option(words[at]):
        at += 2 if words[at].text in ("-C", "--git-dir", "--work-tree", "--namespace") else 1
    unknown = len(words) > _MAX_WORDS or (at < len(words) and not words[at].known)
    return unknown or _GIT_RUNS.fullmatch("".join(f"\0{word.text}" for word in words[1:])) is not None
