"""Words of a shell line: quotes removed, escapes decoded, and whether the value is known before the line runs.

It also holds the check that a syntax tree can be trusted: tree-sitter and bash disagree in corners (line
continuations inside words, redirects inside `[ ]`, backticks in here-documents), and a disagreement would let a
command hide. So every byte of the source has to be explained by a token of the strict form below, or by blanks.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

from lmagent.engine.shellline.meter import Meter

if TYPE_CHECKING:
    from tree_sitter import Node


def names_in(text: str) -> frozenset[str]:
    """The words of a text, as a set: long tables of names stay readable."""
    return frozenset(text.split())


class Word(NamedTuple):
    """One word of a command: its value, or its source where an expansion makes the value unknown.

    `loose`: what it becomes may begin with a dash, or may be several words. A word that is unknown and empty stands
    for any number of further arguments.

    `value` and `sketch` are of an unknown word only: what is certain of it, byte by byte, and which bytes of that stand
    there unquoted; in the sketch a quoted byte is 1, an expansion GLUED or SPLIT.
    """

    text: str
    known: bool = True
    loose: bool = False
    value: bytes = b""
    sketch: bytes = b""


REST = Word("", known=False, loose=True)
GLUED, SPLIT = b"\x02", b"\x03"
"""What an expansion is in a sketch: one that stays one word, and one that may be several, or none."""


# Reserved words are no commands: where a wrapper is followed by one, the shell reads the line in another way.
RESERVED = names_in("! { } [[ ]] if then else elif fi do done case esac while until for in function select time coproc")
MAX_NESTING = 150
WORDS = names_in(
    "word number string raw_string ansi_c_string simple_expansion expansion command_substitution process_substitution "
    "arithmetic_expansion concatenation brace_expression translated_string"
)
STATEMENTS = names_in(
    "command redirected_statement pipeline list subshell compound_statement if_statement while_statement for_statement "
    "c_style_for_statement case_statement function_definition negated_command test_command declaration_command "
    "unset_command variable_assignment variable_assignments"
)
_WORDISH = WORDS | {"command_name", "variable_assignment", "variable_name", "$"}
_TIGHT = frozenset(("concatenation", "simple_expansion", "variable_assignment", "translated_string"))
_NO_SEPARATOR = frozenset(("command", "variable_assignments", "declaration_command", "c_style_for_statement"))
_COMPOUND = names_in(
    "compound_statement test_command negated_command if_statement elif_clause else_clause for_statement "
    "c_style_for_statement while_statement do_group case_statement case_item function_definition"
)
_KEYWORDS = RESERVED | {"[", "]"}
_EDGES = frozenset((b"", *(bytes((char,)) for char in b" \t\n;&|()<>`")))
_SPACED = names_in(
    "program command redirected_statement declaration_command unset_command file_redirect herestring_redirect "
    "heredoc_redirect for_statement case_statement variable_assignments test_command array"
)
_ONE_LINE = names_in(
    "command declaration_command unset_command file_redirect herestring_redirect redirected_statement "
    "variable_assignments"
)
_WORD_BYTES = bytes(char for char in range(256) if char not in b" \t\n;&|()<>")
_BLANK = re.compile(rb"(?:[ \t\n]|\\\n)*")
_LINE_END = re.compile(rb"(?:[ \t]|\\\n)*(\n)[ \t\n]*")
_CONTINUATION = re.compile(rb"(?:\\\n)+")
_QUOTED = re.compile(rb"(?:\\.|[^\"`$\\]|\$(?![\w({\[@*#?!$\-]))*", re.DOTALL)
HEREDOC = re.compile(rb"(?:\\.|[^`$\\]|\$(?![\w({\[@*#?!$\-])|`)*", re.DOTALL)
_LEAVES = {
    # A word that begins with a hash sign would be a comment; `$` is a token of its own.
    "word": re.compile(rb"(?!#)(?:\\.|[^\x00-\x20\x7f'\"`$|&;<>()\\])+", re.DOTALL),
    "number": re.compile(rb"-?[\w@#]+"),
    "variable_name": re.compile(rb"\w+"),
    "special_variable_name": re.compile(rb"[-?$!#@*0_]"),
    "raw_string": re.compile(rb"'[^']*'"),
    "ansi_c_string": re.compile(rb"\$'(?:\\.|[^'\\])*'", re.DOTALL),
    "string_content": _QUOTED,
    "heredoc_content": HEREDOC,
    "heredoc_body": re.compile(rb".*", re.DOTALL),
    "program": _BLANK,
    "heredoc_start": re.compile(rb"[^\s$`|&;<>()]+"),
    "heredoc_end": re.compile(rb"\S+"),
    "comment": re.compile(rb"#[^\n]*"),
    "file_descriptor": re.compile(rb"\d+"),
    "test_operator": re.compile(rb"-[a-zA-Z]+"),
    "regex": re.compile(rb"(?:\\.|[^\s'\"`$;&<>\\]|\$(?![\w({'\"\[]))*", re.DOTALL),
    "extglob_pattern": re.compile(rb"(?:\\.|[^\s'\"`$;&<>()|\\])+", re.DOTALL),
}
_ESCAPE = re.compile(
    rb"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.))",
    re.DOTALL,
)
_SIMPLE = dict(zip(b"abeEfnrtv\\'\"?", b"\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


def doubt(root: Node, source: bytes, meter: Meter) -> str:
    """Why the tree cannot be trusted to be what bash reads, or nothing."""
    if not _BLANK.fullmatch(source, 0, root.start_byte) or not _BLANK.fullmatch(source, root.end_byte):
        return "it cannot be parsed"
    stack: list[tuple[Node, int, str]] = [(root, 0, "")]
    while stack:
        node, depth, parent = stack.pop()
        if depth > MAX_NESTING:
            return "it is nested too deeply"
        if _names_descriptor(node, source):
            return "it cannot be parsed with certainty"
        if node.child_count:
            kids = node.children
            meter.spend(len(kids))
            if not _gaps_are_blank(node, kids, source):
                return "it cannot be parsed with certainty"
            stack.extend((kid, depth + 1, node.type) for kid in kids)
        elif not _sound_leaf(node, source, parent):
            return "it cannot be parsed with certainty"
    return ""


def _names_descriptor(node: Node, source: bytes) -> bool:
    """`{name}>file` opens a descriptor; to the tree the name is a word of the command."""
    return (
        node.type in _WORDISH
        and source[node.end_byte : node.end_byte + 1] in (b"<", b">")
        and re.match(rb"\{[A-Za-z_]", source[node.start_byte : node.start_byte + 2]) is not None
        and source[node.end_byte - 1 : node.end_byte] == b"}"
    )


def run_over(root: Node, source: bytes, meter: Meter) -> list[int]:
    """Where tree-sitter-bash runs over the end of a line within a command, as it does after `a | b | c`.

    To bash a `;` in that place is the same, save that a line's end begins a here-document. Whoever puts one there has
    to see that it is a token of the new tree, not a part of a comment.
    """
    found: list[int] = []
    stack = [] if b"<<" in source else [root]
    while stack:
        node = stack.pop()
        kids = node.children
        meter.spend(len(kids))
        stack.extend(kids)
        if node.type in _ONE_LINE:
            for kid, following in itertools.pairwise(kids):
                gap = _LINE_END.fullmatch(source, kid.end_byte, following.start_byte)
                if gap and kid.type != "comment":
                    found.append(gap.start(1))
    return found


def _gaps_are_blank(node: Node, kids: list[Node], source: bytes) -> bool:
    at, kind = node.start_byte, node.type
    text = _QUOTED if kind == "string" else HEREDOC if kind == "heredoc_body" else None
    before = ""
    single_test = kind == "test_command" and kids[0].type == "["
    for kid in [*kids, None]:
        start = kid.start_byte if kid else node.end_byte
        after = kid.type if kid else ""
        if start < at:
            return False
        if start > at and not (text or _BLANK).fullmatch(source, at, start):
            return False
        if start > at and (kind in _TIGHT or (text is None and _CONTINUATION.fullmatch(source, at, start))):
            return False
        # A line's end ends a command, whatever the tree says.
        if kind in _ONE_LINE and b"\n" in source[at:start].replace(b"\\\n", b""):
            return False
        # Two words without a blank between them are one word to bash.
        if start == at and before and after and kind not in _TIGHT and kind != "expansion":
            touching = (
                kind in _SPACED
                and before[0] not in "<>&"
                and not source[at - 1 : at + 1].strip(_WORD_BYTES)
                and at > node.start_byte
            )
            if touching or (before in _WORDISH and after in _WORDISH):
                return False
        separated = kind in _NO_SEPARATOR or b"\n" in source[at:start]
        if before in STATEMENTS and after in STATEMENTS and not separated:
            return False
        if before == "comment" and kid and b"\n" not in source[at:start] and after != "\n":
            return False
        if kid:
            at, before = kid.end_byte, after
    # `[` is a plain command: what looks like an operator inside of it is a redirect or the end of it.
    return not (single_test and re.search(rb"[<>&|;()]", source[node.start_byte : node.end_byte]))


def _sound_leaf(node: Node, source: bytes, parent: str) -> bool:
    start, end = node.start_byte, node.end_byte
    if not node.is_named:
        if source[start:end] != node.type.encode() and node.type.strip():
            return False
        if node.type in _KEYWORDS and parent in _COMPOUND:
            # `!x` and `{x` are words to bash: a reserved word stands alone.
            return source[max(0, start - 1) : start] in _EDGES and source[end : end + 1] in _EDGES
        if node.type != "$" or parent == "simple_expansion":
            return True
        # A dollar sign that stands for itself: nothing may follow that would make it an expansion.
        return not re.match(rb"[\w({\[@*#?!$'\-]", source[end : end + 1]) and (
            parent == "string" or source[end : end + 1] != b'"'
        )
    form = _LEAVES.get(node.type)
    if node.type == "variable_name" and source[start : start + 1].isdigit() and not parent.endswith("expansion"):
        return False
    if form is None or form.fullmatch(source, start, end) is None:
        return False
    if node.type in ("comment", "file_descriptor") and start and source[start - 1] not in b" \t\n;&|()<>{":
        return False
    if node.type in ("string_content", "heredoc_content") and source[end - 1 : end] == b"$":
        return source[end : end + 1] in (b'"', b"\n", b"")
    if node.type in ("word", "number") and source[start:end].isdigit() and source[end : end + 1] in (b"<", b">"):
        return False
    return node.type != "heredoc_start" or source[end : end + 1] in _EDGES


class _Pieces:
    """A word as it is put together: its value, and a sketch in which only unquoted text keeps its characters."""

    def __init__(self) -> None:
        self.value = bytearray()
        self.sketch = bytearray()
        self.unknown = False
        self.splits = False

    def plain(self, raw: bytes) -> None:
        at = 0
        while at < len(raw):
            if raw[at : at + 1] == b"\\":
                if raw[at + 1 : at + 2] != b"\n":
                    self.quoted(raw[at + 1 : at + 2])
                at += 2
            else:
                self.value += raw[at : at + 1]
                self.sketch += raw[at : at + 1]
                at += 1

    def quoted(self, raw: bytes) -> None:
        self.value += raw
        self.sketch += b"\x01" * len(raw)

    def expansion(self, raw: bytes, *, quoted: bool) -> None:
        self.unknown = True
        # "$@" and "${a[@]}" are several words even in quotes.
        mark = SPLIT if not quoted or b"@" in raw else GLUED
        self.value += mark
        self.sketch += mark
        self.splits = self.splits or mark == SPLIT

    def word(self, source: bytes) -> Word:
        sketch = bytes(self.sketch)
        inside = sketch[sketch.find(b"{") : sketch.rfind(b"}") + 1] if b"{" in sketch else b""
        braces = b"," in inside or b".." in inside
        globs = re.search(rb"[*?]", sketch) is not None or 0 <= sketch.find(b"[") < sketch.rfind(b"]")
        tilde = re.search(rb"^~|[:=]~", sketch) is not None
        if not (self.unknown or braces or globs or tilde):
            return Word(bytes(self.value).decode("utf-8", "surrogateescape"))
        dashed = sketch[:1] in (GLUED, SPLIT, b"*", b"?", b"[") or self.value.startswith(b"-")
        loose = self.splits or braces or dashed
        return Word(
            source.decode("utf-8", "surrogateescape"), known=False, loose=loose, value=bytes(self.value), sketch=sketch
        )


def read_word(node: Node, source: bytes) -> Word | None:
    """The word's value, or None where its form is not one that is understood."""
    pieces = _Pieces()
    if not _collect(node, source, pieces):
        return None
    return pieces.word(source[node.start_byte : node.end_byte])


def _collect(node: Node, source: bytes, pieces: _Pieces) -> bool:
    raw = source[node.start_byte : node.end_byte]
    match node.type:
        case "word" | "number" | "regex" | "extglob_pattern" if not node.child_count:
            pieces.plain(raw)
        case "variable_name" | "$" | "==" | "=~" | "test_operator":
            pieces.plain(raw)
        case "raw_string":
            pieces.quoted(raw[1:-1])
        case "ansi_c_string":
            decoded = _ansi(raw[2:-1])
            pieces.quoted(decoded)
            return b"\x00" not in decoded
        case "string":
            _collect_string(node, source, pieces)
        case "simple_expansion" | "expansion" | "command_substitution" | "arithmetic_expansion":
            pieces.expansion(raw, quoted=False)
        case "process_substitution":
            pieces.expansion(raw, quoted=True)
        case "brace_expression":
            pieces.plain(raw)
        case "command_name" | "concatenation":
            return all(_collect(kid, source, pieces) for kid in node.children)
        case _:
            return False
    return True


def _collect_string(node: Node, source: bytes, pieces: _Pieces) -> None:
    """What stands between expansions is text, also where the tree left a blank out."""
    at = node.start_byte + 1
    for kid in [*node.children[1:-1], None]:
        is_text = kid is not None and kid.type in ("string_content", "$")
        start = kid.start_byte if kid else node.end_byte - 1
        if not is_text:
            pieces.quoted(re.sub(rb"\\(?:([$`\"\\])|\n)", lambda m: m[1] or b"", source[at:start]))
            at = kid.end_byte if kid else start
            if kid:
                pieces.expansion(source[kid.start_byte : kid.end_byte], quoted=True)


def _ansi(raw: bytes) -> bytes:
    def one(found: re.Match[bytes]) -> bytes:
        simple, octal, hexa, short, long, control = found.groups()
        if simple:
            return bytes((_SIMPLE[simple[0]],))
        if octal:
            return bytes((int(octal, 8) & 255,))
        if hexa:
            return bytes((int(hexa, 16),))
        if control:
            return bytes((control[0] & 31,))
        point = int(short or long, 16)
        # What is no character makes the word unreadable, which the caller takes from the NUL.
        return chr(point).encode("utf-8", "surrogatepass") if point <= 0x10FFFF else b"\x00"

    return _ESCAPE.sub(one, raw)
