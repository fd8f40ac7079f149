"""Escapes by the terminal: what a command prints must not reach a terminal as orders, whichever way it is shown."""

from __future__ import annotations

import re
from functools import partial

from escape_kit import Case, Ground, Ran

from lmagent.tools.sanitize import one_line, printable
from lmagent.tools.shell.collect import Collector, clean

_ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _shown(ground: Ground, ran: Ran, *, orders: str = "\x1b") -> str:
    """Every way in which output is shown: to the model, to a watcher as it comes, as a label."""
    if orders not in ran.text:
        return f"nothing is proved, since the command did not print it: {ran.text!r}"
    live: list[str] = []
    collector = Collector(ground.base / "spill", live.append)
    for at in range(0, len(ran.raw), 3):  # cut in the middle of sequences
        collector.feed(ran.raw[at : at + 3])
    ways = {"clean": clean(ran.raw), "text": collector.text(), "tail": collector.tail(9), "label": one_line(ran.text)}
    collector.close()
    ways |= {
        "printable": printable(ran.text),
        "live": "".join(live),
        "pieces": "".join(map(printable, re.findall("(?s).{1,2}", ran.text))),
    }
    collector.discard()
    for way, text in ways.items():
        if found := _ORDERS.search(text):
            return f"{way} has {found[0]!r} in it: {text[:100]!r}"
    return ""


def _case(name: str, script: str, orders: str = "\x1b") -> Case:
    return Case(f"terminal-{name}", "terminal", "python", script, proof=partial(_shown, orders=orders), control="held")


CASES = (
    _case("colours-and-clear", r"print('\x1b[31mred\x1b[2J\x1b[H\x1b[?1049h\x1bc\x1b[1;1H\x1b[8mhidden')"),
    _case("title", r"print('\x1b]0;owned\x07 \x1b]2;owned\x1b\\ \x1b[21t')"),
    _case("clipboard", r"print('\x1b]52;c;cm0gLXJmIH4=\x07 \x1b]52;p;cm0=\x1b\\')"),
    _case("hyperlink", r"print('\x1b]8;;file:///etc/passwd\x1b\\harmless\x1b]8;;\x1b\\')"),
    _case(
        "device-strings",
        r"""
        print('\x1bP$q\"p\x1b\\ \x1b_Gf=100;AAAA\x1b\\ \x1b^private\x1b\\ \x1bXsos\x1b\\ \x1bP1000p')
        """,
    ),
    _case("eight-bit", r"print('\x9b2J \x9d52;c;eA==\x9c \x90q\x9c \x9fG\x9c')", orders="\x9b"),
    _case("eight-bit-raw", r"sys.stdout.buffer.write(b'\x9b2J \x9d52;c;eA==\x07 \x1b]0;a\x9c \xc2\x9b2J\n')"),
    _case("unclosed", r"print('\x1b]52;c;' + 'A' * 5000); print('\x1b[' + '1;' * 5000)"),
    _case("nested", r"print('\x1b\x1b[\x1b]0;\x1b[31m\x07m\x1b[\x1b[31m1m \x1b[3\x1b]0;x\x071m')"),
    _case("overdrawn", r"print('rm -rf /\rls       \x08\x08\x08\x7f\x0b\x0c\x0e\x0f')", orders="\r"),
    _case("bidirectional", "print('a \\u202e evil \\u2066 b \\u202c')", orders="\u202e"),
    _case("answerback", r"print('\x05 \x1b[c \x1b[6n \x1b[5n \x1bZ \x1b[?15n \x1b]10;?\x07')"),
)
