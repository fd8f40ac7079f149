"""Parse a shell line with tree-sitter, and decide whether bash surely reads it in the same way.

The grammar and bash disagree in corner cases, and each disagreement could hide a command. A tree is trusted only if all
its nodes are of a short list of kinds, its tokens have a plain form, and only blanks are between them. All other lines
are unclear, and the user is asked.
"""

from __future__ import annotations

import itertools
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node


def names_in(text: str) -> frozenset[str]:
    """Return the words of a text: long tables of names stay readable."""
    return frozenset(text.split())


MAX_BYTES = 16 * 1024
MAX_DEPTH = 60
_MAX_PIPES = 2000  # the end of an unfinished pipeline takes time that grows with the square of its length
_PARSE_SECONDS = 0.25

STATEMENTS = names_in(
    "command redirected_statement pipeline list subshell compound_statement if_statement while_statement for_statement"
    " case_statement negated_command test_command declaration_command unset_command variable_assignment"
)
WORDS = names_in(
    "word number string raw_string simple_expansion expansion command_substitution concatenation arithmetic_expansion"
)
_OTHERS = names_in(
    "program command_name variable_assignments do_group elif_clause else_clause case_item file_redirect"
    " heredoc_redirect herestring_redirect unary_expression binary_expression"
)
_KNOWN = STATEMENTS | WORDS | _OTHERS
_ONE_LINE = names_in("command declaration_command unset_command redirected_statement file_redirect herestring_redirect")
_SPACED = _ONE_LINE - {"file_redirect", "herestring_redirect"}
_TIGHT = names_in("concatenation simple_expansion variable_assignment")
_KEYWORDS = names_in("{ } ! [ ] [[ ]] if then elif else fi for while until do done case in esac")
_EDGES = frozenset((b"", *(bytes((char,)) for char in b" \t\n;&|()")))
_TEXT = rb"(?:\\[^\n]|[^\"`$\\])*"
_LEAVES = {
    "program": rb"", "word": rb"(?!#)(?:\\[^\n]|[^\x00-\x20\x7f'\"`$|&;<>()\\])+", "number": rb"-?\d+",
    "variable_name": rb"\w+", "test_operator": rb"-[a-zA-Z]+",
    "special_variable_name": rb"[?$!#@*0_-]", "raw_string": rb"'[^']*'", "string": rb'""', "string_content": _TEXT,
    "comment": rb"#[^\n]*", "file_descriptor": rb"\d+", "extglob_pattern": rb"[\w.*/-]+",
    "heredoc_start": rb"\w+|'\w+'|\"\w+\"", "heredoc_end": rb"\w+",
}  # fmt: skip
_WHOLE = {
    "arithmetic_expansion": rb"\$\(\([\d\s+*/%()-]*\)\)",
    "expansion": rb"\$\{#?(?:\w+|[@*#?])(?:(?::?[-+?]|##?|%%?|//?)[\w ./*@:,-]*)?\}",
    # Also with expansions of variables; tree-sitter does not see the backticks in it.
    "heredoc_body": rb"(?:[^`$\\]|\$\w+|\$\{\w+\})*",
}
"""Forms of nodes that are checked as a whole, without their children."""
_EVALUATES = re.compile(rb"-(?:v|R|eq|ne|lt|le|gt|ge)\b|[<>&|;()]")
"""In a test: operators that evaluate text as arithmetic, and characters that `[` reads as a redirection."""


def parse(text: str) -> tuple[bytes, Node | None, str]:
    """Return the parsed bytes, their tree, and why the tree cannot be trusted."""
    try:
        source = text.encode() if len(text) <= MAX_BYTES else b" " * (MAX_BYTES + 1)
    except UnicodeEncodeError:
        return b"", None, "it is not valid UTF-8"
    if len(source) > MAX_BYTES or source.count(b"|") > _MAX_PIPES:
        return b"", None, f"it is longer than {MAX_BYTES // 1024} KB or {_MAX_PIPES} pipes"
    if re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", source):
        return b"", None, "it contains control characters"
    # tree-sitter-bash loses the dash of `python - <<EOF`; quoted, it is the same word to bash.
    source = re.sub(rb"(?<=[ \t])-(?=[ \t]*<<)", b"'-'", source)
    root = _tree(source)
    if root is None:
        return source, None, "it takes too long to parse"
    outside = source[: root.start_byte] + source[root.end_byte :]
    sure = not root.has_error and not outside.strip(b" \t\n") and _is_sure(root, source)
    return source, root, "" if sure else "it cannot be parsed with certainty"


def _tree(source: bytes) -> Node | None:
    """Return the syntax tree, or None if the parse takes too long.

    tree-sitter-bash calls C's isalpha with code points far beyond its table and crashes (its issue 337), so it gets
    ASCII only. bash, too, takes all other bytes for ordinary characters of a word, such as a dot, and not of a name.
    """
    import tree_sitter  # only for a session that runs shell commands
    import tree_sitter_bash

    text, deadline = re.sub(rb"[\x80-\xff]", b".", source), time.perf_counter() + _PARSE_SECONDS
    # One parser for each parse: the callbacks let other threads run, and they may parse too.
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    try:
        return parser.parse(
            lambda offset, _point: text[offset:],
            progress_callback=lambda _offset, _error: time.perf_counter() > deadline,
        ).root_node
    except ValueError:
        return None


def _is_sure(root: Node, source: bytes) -> bool:
    pending: list[tuple[Node, str, int]] = [(root, "", 0)]
    while pending:
        node, parent, depth = pending.pop()
        kind, raw = node.type, source[node.start_byte : node.end_byte]
        if kind in _WHOLE:
            sure = re.fullmatch(_WHOLE[kind], raw) is not None or (kind == "heredoc_body" and parent == "quoted")
        elif not node.child_count:
            sure = _is_plain_leaf(node, raw, source, parent)
        else:
            sure = kind in _KNOWN and _is_plain_node(node, raw, source)
            label = "quoted" if kind == "heredoc_redirect" and _is_quoted(node, source) else kind
            pending += [(kid, label, depth + 1) for kid in node.children]
        if not sure or depth > MAX_DEPTH:
            return False
    return True


def _is_quoted(node: Node, source: bytes) -> bool:
    return any(kid.type == "heredoc_start" and source[kid.start_byte] in b"'\"" for kid in node.children)


def _is_plain_leaf(node: Node, raw: bytes, source: bytes, parent: str) -> bool:
    before, after = source[max(0, node.start_byte - 1) : node.start_byte], source[node.end_byte : node.end_byte + 1]
    if node.is_named:
        form = _LEAVES.get(node.type)
        if form is None or re.fullmatch(form, raw, re.DOTALL) is None:
            return False
        if node.type == "variable_name" and raw[:1].isdigit():
            return parent.endswith("expansion")
        if node.type in ("comment", "file_descriptor"):
            return before in _EDGES
        return node.type != "heredoc_start" or after in _EDGES
    if raw != node.type.encode() and node.type.strip():
        return False
    if node.type in _KEYWORDS:
        return before in _EDGES and after in _EDGES
    if node.type == "$" and parent != "simple_expansion":
        return parent == "string" and after in (b'"', b" ")
    return node.type != "`"


def _is_plain_node(node: Node, raw: bytes, source: bytes) -> bool:
    """Return whether only blanks are between the parts of a node, and blanks are where bash needs them."""
    kind, kids = node.type, node.children
    if kind == "test_command" and (kids[0].type not in ("[", "[[") or _EVALUATES.search(raw)):
        return False
    if kind == "compound_statement" and kids[0].type != "{":
        return False
    if kind == "heredoc_redirect" and not _is_plain_heredoc(node, source):
        return False
    rest = source[kids[-1].end_byte : node.end_byte]
    if kids[0].start_byte != node.start_byte or rest.strip(b"\n") or (rest and kind != "program"):
        return False
    return all(
        one.end_byte <= two.start_byte and _is_plain_gap(kind, one, two, source[one.end_byte : two.start_byte])
        for one, two in itertools.pairwise(kids)
    )


def _is_plain_gap(kind: str, before: Node, after: Node, gap: bytes) -> bool:
    if kind == "string":
        return re.fullmatch(_TEXT, gap) is not None and bool(gap or before.type not in WORDS or after.type not in WORDS)
    plain = gap.replace(b"\\\n", b"")
    if plain.strip(b" \t" if kind in _ONE_LINE else b" \t\n") or (gap and not plain) or (gap and kind in _TIGHT):
        return False
    if before.type == "comment" and b"\n" not in gap and after.type != "\n":
        return False
    if not gap and kind in _SPACED:
        return False
    if not (before.is_named and after.is_named) or kind in _TIGHT or kind in ("heredoc_redirect", "file_redirect"):
        return True
    if before.type in STATEMENTS and after.type in STATEMENTS and kind not in ("command", "variable_assignments"):
        return b"\n" in plain
    return bool(gap)


def _is_plain_heredoc(node: Node, source: bytes) -> bool:
    """Return whether a here-document ends where bash ends it."""
    part = {kid.type: source[kid.start_byte : kid.end_byte] for kid in node.children}
    name, body = part.get("heredoc_start", b"").strip(b"'\""), part.get("heredoc_body", b"")
    ended = part.get("heredoc_end", b"") == name and body.endswith(b"\n") and "<<-" not in part
    return bool(name) and ended and name not in body.split(b"\n")
