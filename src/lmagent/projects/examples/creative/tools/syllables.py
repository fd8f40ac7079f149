import re


def syllables(line: str) -> int:
    """Count the syllables of an English line, roughly: groups of vowels."""
    words = re.findall(r"[a-z]+", line.lower())
    return sum(max(1, len(re.findall(r"[aeiouy]+", word.removesuffix("e")))) for word in words)
