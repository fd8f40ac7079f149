"""WordPiece: text to the token numbers of an uncased BERT model, in plain Python."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

_LONGEST_WORD = 100  # as in BERT's own tokenizer: a longer word is unknown

_CJK = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


class WordPiece:
    """A tokenizer.

    Args:
        vocabulary: number of each token.

    Attributes:
        first: number of the token that begins a text; `last` ends it.
    """

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self.first = vocabulary["[CLS]"]
        self.last = vocabulary["[SEP]"]
        self._vocabulary = vocabulary
        self._unknown = vocabulary["[UNK]"]
        self._known: dict[str, list[int]] = {}

    def tokens(self, text: str, most: int) -> list[int]:
        """Return up to `most` token numbers, without those of the beginning and the end."""
        found: list[int] = []
        # A text is cut before it is read whole: a token is rarely longer than this.
        for word in _words(text[: most * 16]):
            if word not in self._known:
                if len(self._known) > 50_000:
                    self._known.clear()
                self._known[word] = self._pieces(word)
            found += self._known[word]
            if len(found) >= most:
                break
        return found[:most]

    def _pieces(self, word: str) -> list[int]:
        """Cut a word into the longest tokens that there are, from its beginning."""
        if len(word) > _LONGEST_WORD:
            return [self._unknown]
        pieces: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = self._vocabulary.get(("##" if start else "") + word[start:end])
                if number is not None:
                    pieces.append(number)
                    start = end
                    break
            else:
                return [self._unknown]
        return pieces


def _words(text: str) -> list[str]:
    """Return the words and single punctuation marks of a text, in lower case and without accents."""
    if text.isascii() and text.isprintable():
        clean = "".join(char if char.isalnum() or char == " " else f" {char} " for char in text.lower())
        return clean.split()
    pieces: list[str] = []
    for char in text:
        category = unicodedata.category(char)
        if char in "\t\n\r" or category == "Zs":
            pieces.append(" ")
        elif char not in "\0\ufffd" and category not in ("Cc", "Cf", "Co", "Cs"):
            pieces.append(f" {char} " if any(low <= ord(char) <= high for low, high in _CJK) else char)
    lower = unicodedata.normalize("NFD", "".join(pieces).lower())
    marked = (f" {char} " if _is_punctuation(char) else char for char in lower if unicodedata.category(char) != "Mn")
    return "".join(marked).split()


def _is_punctuation(char: str) -> bool:
    if char.isascii():  # BERT counts all symbols of ASCII
        return not char.isalnum() and char.isprintable() and char != " "
    return unicodedata.category(char).startswith("P")
