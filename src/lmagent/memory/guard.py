"""Guard: refuses texts that must not be remembered. It refuses the whole text and never repairs one.

A memory is read again in later sessions, where nothing tells it from what the user said. So a secret, characters that
hide text, and instructions that did not come from the user stay out.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from lmagent.memory.entries import By
from lmagent.tools.sanitize import is_hiding

LONGEST = 1000  # characters of an entry

_IS = r"(?:\s(?:is|was|are|lautet|ist)\s|[:=])\s*"
_NAMED = (  # what a text calls a secret, and then its value; the value of a password may be any word
    r"\b(?:pass ?(?:word|wd|phrase|code|wort)|pwd|pin)\b[^.\n]{0,40}?" + _IS + r"\S",
    r"\b(?:secret|token|api[ _-]?key|access key|credentials?)\b[^.\n]{0,40}?" + _IS + r"\S*[\d_@#$%&*+=!]",
    r"\b(?:bearer|basic)\s+[A-Za-z0-9+/=._\-]{12,}",
)
_SHAPED = (  # texts that look like keys of well-known services, or like any key: long, with both cases and digits
    r"-----BEGIN [A-Z ]*PRIVATE KEY",
    r"\b(?:sk|pk|rk|ghp|gho|ghs|ghu|glpat|xox[abprs]|hf|npm|pypi|ya29)[-_][A-Za-z0-9_\-]{12,}",
    r"\bgithub_pat_\w{20,}",
    r"\bAIza[\w-]{20,}",
    r"\bA(?:KIA|SIA)[A-Z0-9]{16}\b",
    r"\beyJ[\w-]{10,}\.[\w-]{6,}",  # JSON web token
    r"://[^\s/:@]+:[^\s/@]+@",  # a password in an address
    r"\b(?=[\w+/-]*\d)(?=[\w+/-]*[A-Z])(?=[\w+/-]*[a-z])[\w+/-]{28,}",
)

_AGENTS = r"\b(?:you|lmagent|(?:the |an? |all )?(?:agent|assistant|model|ai|bot)s?)"
_ORDERS = (  # how texts from elsewhere give orders
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:instruction|rule|previous|prior|above|everything|polic"
    r"|guard|safety|prompt|approval)",
    r"\b(?:from now on|going forward|henceforth)\b",
    r"\bin (?:every|all) (?:future )?(?:session|reply|answer|conversation)",
    _AGENTS + r" (?:must|should|shall|has to|have to|needs? to|ought to|will always|may never|(?:is|are) to\b"
    r"|(?:is|are) (?:required|instructed))",
    r"\b(?:system prompt|developer message|tool_call)\b|</?(?:system|user|assistant|tool)\b|\[INST\]|<\|",
    r"\b(?:do not|don't|never) (?:tell|ask|inform|mention|show|warn|reveal)\b",
    r"\bwithout (?:asking|approval|confirmation|telling)\b|\bauto[- ]?approve",
    r"\b(?:curl|wget)\b[^|]*\|\s*(?:ba|z|da)?sh\b|\brm -rf\b|\bchmod 777\b|\bbase64 (?:-d|--decode)\b",
    r"\b(?:remember|memori[sz]e|store|save) (?:this|that|the following)\b",
)
_VERBS = frozenset(
    {
        *("always", "never", "add", "allow", "append", "approve", "ask", "call", "change", "click", "commit"),
        *("connect", "contact", "copy", "create", "delete", "deploy", "disable", "do", "download", "email"),
        *("enable", "ensure", "execute", "export", "fetch", "follow", "forward", "give", "go", "grant", "ignore"),
        *("include", "insert", "install", "invoke", "mail", "make", "move", "obey", "open", "paste", "post"),
        *("print", "publish", "push", "put", "read", "recommend", "remove", "rename", "reply", "respond", "reveal"),
        *("run", "say", "send", "set", "share", "start", "stop", "submit", "switch", "tell", "transfer", "trust"),
        *("try", "turn", "type", "update", "upload", "use", "visit", "write"),
    }
)
_POLITE = ("please", "immediately", "first", "then", "next", "important", "note", "urgent", "todo", "system")


def refusal(text: str, by: By, secrets: Collection[str] = ()) -> str:
    """Return why a text must not be stored; empty if it may. The user may store orders; no other source may."""
    if not text.strip():
        return "it is empty"
    if len(text) > LONGEST:
        return f"it is longer than {LONGEST} characters; store the fact, not the document"
    if "<!--" in text or "-->" in text:
        return "it has the marks of a comment, in which the origin is kept"
    if is_hiding(text):
        return "it has hidden characters"
    if is_secret(text, secrets):
        return "it looks like a secret"
    if by != "user" and is_order(text):
        return "it is an instruction; only the user gives those"
    return ""


def is_secret(text: str, known: Collection[str] = ()) -> bool:
    """Return whether a text holds a password, a key or a token, or one of the configured secrets."""
    if any(len(secret) >= 8 and secret in text for secret in known):
        return True
    named = any(re.search(pattern, text, re.IGNORECASE) for pattern in _NAMED)
    return named or any(re.search(pattern, text) for pattern in _SHAPED)


def is_order(text: str) -> bool:
    """Return whether a text gives orders instead of stating a fact."""
    if any(re.search(pattern, text, re.IGNORECASE) for pattern in _ORDERS):
        return True
    return any(_begins_with_verb(sentence) for sentence in re.split(r"[.!?:;,]\s+|\n", text))


def _begins_with_verb(sentence: str) -> bool:
    """Return whether a sentence begins with a verb in the form of an order: "Send it", not "Sending" or "A send"."""
    words = [word.strip("-*#>\"'`([,:").casefold() for word in sentence.split()]
    words = [word for word in words if word]
    while words and words[0] in _POLITE:
        words.pop(0)
    return len(words) > 1 and words[0] in _VERBS and words[1] not in ("is", "are", "was", "were", "has", "had", "does")
