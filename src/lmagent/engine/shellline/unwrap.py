"""Programs that run other programs: `sudo`, `env`, `timeout`, `xargs`, `find -exec`, `bash -c` and their kin.

`peel` takes the words of one command and says what it would run besides itself. An option that is not in the table
means that nobody knows where the inner command begins, so the answer is "opaque", never a guess.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lmagent.engine.shellline.guess import named
from lmagent.engine.shellline.words import GLUED, REST, SPLIT, Word
from lmagent.engine.shellline.wrappers import (
    CARRIERS,
    ONLY_BASH,
    READING,
    REDEFINE,
    SHELLS,
    SPECS,
    SYSTEM_DIRS,
    Spec,
)

_NAME = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)


class Peeled(NamedTuple):
    """What a command runs besides itself.

    `keep`: it is a command in its own right, too. `hides`: what is opaque is not even in its words, or may not be.
    """

    inner: tuple[tuple[Word, ...], ...] = ()
    texts: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    keep: bool = False
    opaque: str = ""
    hides: bool = True


def base_name(name: str) -> str:
    """The program's name without its folder."""
    return name.rsplit("/", 1)[-1]


def is_bare(name: str) -> bool:
    """Whether a command of this name is the system's program, not one that lies about in the workspace."""
    return "/" not in name or name.rpartition("/")[0] in SYSTEM_DIRS


def peel(words: Sequence[Word], fed: str | None = None) -> Peeled | None:
    """What the command runs besides itself, or None where it is an ordinary program.

    Args:
        words: the command; the first word is known.
        fed: the text on its standard input, where that is static (a quoted here-document).
    """
    name, found = base_name(words[0].text), None
    if name in SHELLS:
        found = _shell(name, words, fed)
    elif special := _SPECIAL.get(name):
        found = special(words)
    elif name in REDEFINE:
        found = Peeled(keep=True, opaque=f"it changes what commands mean: {name}", hides=_obscure(words))
    elif name in CARRIERS:
        hides = name in READING or _obscure(words)
        found = Peeled(keep=True, opaque=f"it hands a command to {name}", hides=hides)
    elif spec := SPECS.get(name):
        found = _wrapped(name, spec, words)
    return found._replace(keep=True) if found is not None and not is_bare(words[0].text) else found


def _obscure(words: Sequence[Word]) -> bool:
    """Whether a command that is not taken apart may run what its words, read as text, do not name."""
    return any(
        not word.known
        or base_name(word.text) in WRAPPERS
        or re.search(r"[$`*?\[{\\]|\b(?:eval|source|(?:ba|da|z|k)?sh)\b", word.text)
        for word in words[1:]
    )


def _unclear(words: Sequence[Word]) -> Peeled:
    name = base_name(words[0].text)
    hides = name in SHELLS or _obscure(words)
    return Peeled(keep=True, opaque=f"what {name} would run is not understood", hides=hides)


def _run_time(name: str, *, hides: bool = True) -> Peeled:
    return Peeled(keep=True, opaque=f"it runs text that is only known at run time: {name}", hides=hides)


def _wrapped(name: str, spec: Spec, words: Sequence[Word]) -> Peeled | None:
    at, writes, plain = _skip(words, spec)
    if plain:
        return None
    if at < 0:
        return _unclear(words)
    for _ in range(spec.operands):
        if at < len(words) and not words[at].known:
            return _unclear(words)
        at += 1
    assignments: list[str] = []
    while spec.assigns and at < len(words) and _assigns(words[at]):
        if words[at].loose:
            return _unclear(words)
        assignments.append(words[at].text)
        at += 1
    if at >= len(words):
        # `sudo -i` and `sudo -s` start a shell that reads its commands; the others have nothing to run.
        return _run_time(name) if name in ("sudo", "doas") and len(words) > 1 else None
    if name in ("time", "coproc") and _NAME.match(words[at].text):
        return _unclear(words)  # an assignment or a command, by the quotes, which are gone
    return Peeled((tuple(words[at:]),), assignments=tuple(assignments), writes=writes, keep=spec.keep)


def _is_operand(word: Word) -> bool:
    """Whether an unknown word cannot turn out to be an option: its beginning is a letter that stands there."""
    return re.match(rb"[\w./]", word.value) is not None and GLUED not in word.value and SPLIT not in word.value


def _assigns(word: Word) -> bool:
    """To `env` and `sudo` whatever has a `=` in it is an assignment."""
    if word.known:
        return "=" in word.text[1:]
    return _NAME.match(word.text) is not None


def _skip(words: Sequence[Word], spec: Spec) -> tuple[int, tuple[str, ...], bool]:
    """Where the inner command begins (-1: unknown), what the options write, and whether nothing is run."""
    at, writes = 1, ()
    while at < len(words):
        word = words[at]
        if not word.known:
            operand = _assigns(word) if spec.assigns else _is_operand(word)
            return (at if operand else -1), writes, False
        text = word.text
        if text == "--":
            return at + 1, writes, False
        if not text.startswith("-") or text == "-":
            return at, writes, False
        width, target, plain = _option(words, at, spec)
        if plain:
            return at, writes, True
        if not width:
            return -1, writes, False
        writes += target
        at += width
    return at, writes, False


def _option(words: Sequence[Word], at: int, spec: Spec) -> tuple[int, tuple[str, ...], bool]:
    """How many words an option takes (0: unknown), the file it writes, and whether nothing is run with it."""
    text = words[at].text
    following = words[at + 1] if at + 1 < len(words) else None
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        if name in ("--help", "--version"):
            return 1, (), True
        writes = name == "--output" and bool(spec.writes)
        if name in spec.long_flags.split() or (equals and name in spec.long_valued.split()):
            return 1, (value,) if writes else (), False
        if name in spec.long_valued.split() and following is not None and following.known:
            return 2, (following.text,) if writes else (), False
        return 0, (), False
    for index, letter in enumerate(text[1:], 2):
        if letter in spec.plain:
            return 1, (), True
        if letter in spec.valued:
            attached = text[index:]
            if not attached and (following is None or not following.known):
                return 0, (), False
            value = attached or (following.text if following else "")
            return (1 if attached else 2), (value,) if letter in spec.writes else (), False
        if letter not in spec.flags:
            return 0, (), False
    return 1, (), False


def _env(words: Sequence[Word]) -> Peeled | None:
    """`env -S 'a b' c` splits its text into words; the rest is an ordinary wrapper."""
    for at, word in enumerate(words[1:], 1):
        text = word.text
        if not text.startswith("-") or text == "--":
            break
        split = re.fullmatch(r"(?:-[i0v]*S|--split-string=?)(.*)", text, re.DOTALL)
        if split is None:
            continue
        rest = list(words[at + 1 :])
        value = Word(split[1], word.known) if split[1] else (rest.pop(0) if rest else Word(""))
        if not value.known or set(value.text) & set("\\$#"):
            return _run_time("env -S")
        try:
            parts = [Word(part) for part in shlex.split(value.text)]
        except ValueError:
            return _unclear(words)
        return Peeled(((*words[:at], *parts, *rest),))
    if any(word.text == "-" for word in words[1:2]):
        words = (words[0], Word("-i"), *words[2:])
    return _wrapped("env", SPECS["env"], words)


def _xargs(words: Sequence[Word]) -> Peeled | None:
    """The inner command gets further arguments, or has a placeholder replaced, that nobody can know."""
    spec = SPECS["xargs"]
    at, _, plain = _skip(words, spec)
    if plain:
        return None
    if at < 0 or at >= len(words):
        return _unclear(words) if at < 0 else None
    placeholder = _placeholder(words[1:at])
    if placeholder is None:
        return Peeled(((*words[at:], REST),))
    return Peeled((tuple(_replaced(word, placeholder) for word in words[at:]),))


def _placeholder(options: Sequence[Word]) -> str | None:
    texts = [word.text for word in options]
    for at, text in enumerate(texts):
        # In a cluster such as `-0I{}` the letter before is one without a value.
        if found := re.fullmatch(r"-[0rtpxo]*I(.*)", text, re.DOTALL):
            return found[1] or (texts[at + 1] if at + 1 < len(texts) else "{}")
    return None


def _replaced(word: Word, placeholder: str) -> Word:
    if placeholder not in word.text:
        return word
    # One word stays one word, but it may begin with a dash where the placeholder is what it begins with.
    return Word(word.text, known=False, loose=word.loose or word.text.startswith((placeholder, "-")))


def _find(words: Sequence[Word]) -> Peeled | None:
    """`find` runs (-exec, -ok), deletes and writes (-fprint) besides looking."""
    inner: list[tuple[Word, ...]] = []
    writes: list[str] = []
    at = 1
    while at < len(words):
        text = words[at].text if words[at].known else ""
        if text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((i for i in range(at + 1, len(words)) if _ends_exec(words, i)), -1)
            if end <= at + 1:
                return _unclear(words)
            inner.append(tuple(_replaced(word, "{}") for word in words[at + 1 : end]))
            at = end
        elif text == "-delete":
            # To a rule, this is `rm` of files nobody has named: `find *` does not allow it, a denied `rm` denies it.
            inner.append((Word("rm"), Word("-r"), REST))
        elif text in ("-fprint", "-fprint0", "-fls", "-fprintf"):
            writes.append(words[at + 1].text if at + 1 < len(words) else "?")
        at += 1
    return Peeled(tuple(inner), writes=tuple(writes), keep=True) if inner or writes else None


def _ends_exec(words: Sequence[Word], at: int) -> bool:
    return words[at].text == ";" or (words[at].text == "+" and words[at - 1].text == "{}")


def _shell(name: str, words: Sequence[Word], fed: str | None) -> Peeled | None:
    """A shell: the text of -c, its standard input, or a script, which is then an argument like any other."""
    at, text_next = 1, False
    while at < len(words):
        word = words[at]
        if not word.known:
            return _run_time(name)
        if word.text in ("--version", "--help") and at == 1:
            return None
        if word.text in ("--norc", "--noprofile", "--posix", "--login"):
            at += 1
            continue
        if word.text in ("--", "-") or not re.match(r"[-+].", word.text):
            at += word.text in ("--", "-")
            break
        # Not: -O and -k, which change how the text is read, nor -i, with which aliases count.
        if not re.fullmatch(r"-[abcefhlmnoptuvxBCEPTsr]+|\+[aefhmnotuvxBCEPT]+", word.text):
            return _unclear(words)
        letters = word.text[1:]
        if "s" in letters and "c" not in letters:
            return _text(name, fed) if fed is not None else _run_time(name)
        text_next = text_next or "c" in letters
        at += 1 + letters.count("o")
    if text_next:
        if at >= len(words) or not words[at].known:
            return _run_time(f"{name} -c")
        return _text(name, words[at].text)
    if at >= len(words):
        return _text(name, fed) if fed is not None else _run_time(f"{name} reads its input")
    return _script(name, words[at])


def _text(name: str, text: str) -> Peeled:
    """Shell text. It is parsed as bash, so it must not be such that another shell reads it in another way."""
    if name not in ("bash", "rbash") and ONLY_BASH.search(text):
        opaque = f"{name} may read it in another way than bash"
        return Peeled(texts=(text,), keep=True, opaque=opaque, hides=False)
    return Peeled(texts=(text,))


def _script(name: str, word: Word) -> Peeled | None:
    if word.known and not word.text.startswith(("/dev/", "/proc/")) and word.text != "-":
        return None
    # "$dir/env.sh" is a file, whatever the folder; "$dir/stdin" need not be one.
    base = named(word)
    plain = base is not None and not base[1] and "/" in word.text and re.search(r"[A-Za-z]", base_name(base[0]))
    return _run_time(name, hides=word.known or not plain or base_name(base[0] if base else "") == "stdin")


def _operands(words: Sequence[Word]) -> Sequence[Word]:
    return words[2:] if len(words) > 1 and words[1].text == "--" else words[1:]


def _source(words: Sequence[Word]) -> Peeled | None:
    operands = _operands(words)
    return _script(words[0].text, operands[0]) if operands else None


def _joined(words: Sequence[Word]) -> Peeled | None:
    """`eval`: its words, joined, are shell text."""
    operands = _operands(words)
    if not all(word.known for word in operands):
        return _run_time(base_name(words[0].text))
    text = " ".join(word.text for word in operands)
    return _text("sh" if words[0].text.endswith("watch") else "bash", text) if operands else None


def _watch(words: Sequence[Word]) -> Peeled | None:
    at, _, plain = _skip(words, SPECS["watch"])
    if plain or at >= len(words):
        return None
    return _unclear(words) if at < 0 else _joined((words[0], Word("--"), *words[at:]))


def _trap(words: Sequence[Word]) -> Peeled | None:
    operands = _operands(words)
    if not operands or (operands[0].known and operands[0].text in ("-", "", "-p", "-l", "-P")):
        return None
    return Peeled(texts=(operands[0].text,)) if operands[0].known else _run_time("trap")


def _busybox(words: Sequence[Word]) -> Peeled | None:
    if len(words) < 2 or (words[1].known and words[1].text.startswith("-")):
        return None
    return Peeled((tuple(words[1:]),))


def _su(words: Sequence[Word]) -> Peeled | None:
    for at, word in enumerate(words):
        if word.text in ("-c", "--command") and at + 1 < len(words) and words[at + 1].known:
            return _text("sh", words[at + 1].text)._replace(keep=True)
    return _run_time("su")


def _callback(words: Sequence[Word]) -> Peeled | None:
    """`mapfile -C` and `jobs -x` run what they are given."""
    if any(not word.known or re.match(r"-\w*[Cx]", word.text) for word in words[1:]):
        return _run_time(words[0].text)
    return None


_SPECIAL: dict[str, Callable[[Sequence[Word]], Peeled | None]] = {
    "env": _env, "xargs": _xargs, "find": _find, "eval": _joined, "source": _source, ".": _source, "watch": _watch,
    "trap": _trap, "busybox": _busybox, "toybox": _busybox, "su": _su, "mapfile": _callback, "readarray": _callback,
    "jobs": _callback,
}  # fmt: skip

WRAPPERS = frozenset((*SHELLS, *REDEFINE, *CARRIERS, *SPECS, *_SPECIAL, "git"))
"""Names of programs behind which another one may stand."""
